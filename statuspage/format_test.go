// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"net"
	"testing"
	"time"
)

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1:                      "–",
		0:                       "< 1 µs",
		time.Microsecond:        "1.0 µs",
		340 * time.Microsecond:  "340 µs",
		9990 * time.Microsecond: "9.9 ms",
		time.Second - 1:         "999 ms",
		34 * time.Millisecond:   "34 ms",
		1250 * time.Millisecond: "1.2 s",
		59 * time.Second:        "59 s",
		60 * time.Second:        "1 m",
	} {
		if got := took(duration(d)); got != want {
			t.Errorf("took(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour:                    "0 s",
		999 * time.Millisecond:        "0 s",
		59*time.Second + 1:            "59 s",
		time.Minute:                   "1 m",
		250 * time.Second:             "4 m 10 s",
		time.Hour:                     "1 h",
		125*time.Minute + time.Second: "2 h 5 m",
		76 * time.Hour:                "3 d 4 h",
		72*time.Hour + 59*time.Minute: "3 d",
		290 * 365 * 24 * time.Hour:    "105850 d",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %q, want %q", d, got, want)
		}
	}
}

// TestUntil has a time that is too far away for a time.Duration.
func TestUntil(t *testing.T) {
	if got, want := until(time.Now().AddDate(1000, 0, 0)), "106751 d 23 h"; got != want {
		t.Errorf("until the next millennium it is %q, want %q", got, want)
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestRate(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0/s", 1.0 / 3600: "1/h", 1.0 / 86400: "0.042/h", 1.0 / 60: "1.0/min", 0.09: "5.4/min", 0.1: "0.1/s", 9.94: "9.9/s", 9.96: "10/s", 12345: "12,345/s",
	} {
		if got := perSecond(n); got != want {
			t.Errorf("perSecond(%v) = %q, want %q", n, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"ééé", 3, "ééé"}, {"éééé", 3, "ééé…"}, {"\xff\xff", 1, "\xff…"},
	} {
		if got := shorten(test.text, test.n); got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

// TestPageURL checks the URL of the page in the log.
func TestPageURL(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80":   "http://127.0.0.1:80",
		"192.0.2.1:8080": "http://192.0.2.1:8080",
		"[::1]:8080":     "http://[::1]:8080",
		"0.0.0.0:8080":   "http://localhost:8080",
		"[::]:8080":      "http://localhost:8080",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := pageURL(a); got != want {
			t.Errorf("pageURL(%s) = %s, want %s", address, got, want)
		}
	}
}
