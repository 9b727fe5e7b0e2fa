// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A duration is a time.Duration that is a number of seconds in JSON.
type duration time.Duration

// none is a duration that there is not: null in JSON, or left out.
const none duration = -1

// IsZero says what omitzero leaves out.
func (d duration) IsZero() bool { return d < 0 }

func (d duration) MarshalJSON() ([]byte, error) {
	if d < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(d).Seconds())
}

var units = []struct {
	length time.Duration
	name   string
}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}}

// took formats how long something took: three digits at most, never rounded up.
func took(d duration) string {
	switch {
	case d < 0:
		return "–"
	case d >= duration(time.Minute):
		return age(time.Duration(d))
	}
	for _, u := range units {
		switch tenths := 10 * time.Duration(d) / u.length; {
		case tenths >= 100:
			return fmt.Sprintf("%d %s", tenths/10, u.name)
		case tenths >= 10:
			return fmt.Sprintf("%d.%d %s", tenths/10, tenths%10, u.name)
		}
	}
	return "< 1 µs"
}

// since formats how long ago something was; zero is never.
func since(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return age(time.Since(t))
}

// until formats how long it takes until something comes, and never says 0 s
// before that.
func until(t time.Time) string {
	return age(min(time.Until(t), math.MaxInt64-time.Second) + time.Second - 1)
}

// age formats how long ago something was, or how long it takes until it comes:
// in whole seconds, in two units at most.
func age(d time.Duration) string {
	seconds := int64(max(0, d) / time.Second)
	for _, u := range []struct {
		inBig   int64
		big     string
		inSmall int64
		small   string
	}{{24 * 60 * 60, "d", 60 * 60, "h"}, {60 * 60, "h", 60, "m"}, {60, "m", 1, "s"}} {
		n, rest := seconds/u.inBig, seconds%u.inBig/u.inSmall
		if n > 0 && rest > 0 {
			return fmt.Sprintf("%d %s %d %s", n, u.big, rest, u.small)
		} else if n > 0 {
			return fmt.Sprintf("%d %s", n, u.big)
		}
	}
	return fmt.Sprintf("%d s", seconds)
}

// number formats a count with commas between thousands.
func number[N int | uint64](n N) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// perSecond formats a rate: per minute or per hour if it is low.
func perSecond(n float64) string {
	switch {
	case n == 0:
		return "0/s"
	case n < 0.1/60:
		return fmt.Sprintf("%.2g/h", 3600*n)
	case n < 0.1:
		return fmt.Sprintf("%.1f/min", 60*n)
	case n < 9.95:
		return fmt.Sprintf("%.1f/s", n)
	}
	return number(int(n+0.5)) + "/s"
}

// visible returns a name as it is, or in quotes if nothing of it would be seen:
// there has to be something to click on.
func visible(name string) string {
	seen := func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }
	if strings.ContainsFunc(name, seen) {
		return name
	}
	return strconv.Quote(shorten(name, 20))
}

// shorten cuts a text to n characters for a table.
func shorten(s string, n int) string {
	chars := 0
	for i := range s {
		if chars++; chars > n {
			return s[:i] + "…"
		}
	}
	return s
}

// pageURL returns a URL that a browser on this machine can open.
func pageURL(address net.Addr) string {
	host, port, _ := net.SplitHostPort(address.String())
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
