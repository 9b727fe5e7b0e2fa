// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// took formats how long something took: three digits at most.
func took(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return "< 1 µs"
	case d < time.Millisecond:
		return digits(d, time.Microsecond) + " µs"
	case d < time.Second:
		return digits(d, time.Millisecond) + " ms"
	case d < time.Minute:
		return digits(d, time.Second) + " s"
	}
	return age(d)
}

// digits divides d by a unit, and never rounds up.
func digits(d, unit time.Duration) string {
	if d < 10*unit {
		return strconv.FormatFloat(float64(d*10/unit)/10, 'f', 1, 64)
	}
	return strconv.FormatInt(int64(d/unit), 10)
}

// age formats how long ago something was, or how long it takes until it comes:
// in whole seconds, in two units at most.
func age(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 60*60:
		return units(s, "m", 60, "s", 1)
	case s < 24*60*60:
		return units(s, "h", 60*60, "m", 60)
	}
	return units(s, "d", 24*60*60, "h", 60*60)
}

func units(s int64, big string, inBig int64, small string, inSmall int64) string {
	n, rest := s/inBig, s%inBig/inSmall
	if rest == 0 {
		return fmt.Sprintf("%d %s", n, big)
	}
	return fmt.Sprintf("%d %s %d %s", n, big, rest, small)
}

// number formats a count with commas between thousands.
func number[N int | int32 | uint64](n N) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// perSecond formats a rate: per minute if it is low.
func perSecond(n float64) string {
	switch {
	case n == 0:
		return "0/s"
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
