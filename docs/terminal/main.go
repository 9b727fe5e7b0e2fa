// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command terminal makes a moving picture of what the example showed on a
// terminal: it reads what script(1) recorded and writes an SVG, for a dark page
// or, with -light, for a light one:
//
//	script -qec 'stty cols 100 rows 24 && go run ./example' /dev/null </dev/null >picture.out
//	go run ./docs/terminal <picture.out >docs/img/example-dark.svg
//	go run ./docs/terminal -light <picture.out >docs/img/example-light.svg
//
// It knows as much of a terminal as the example's table needs: a frame begins
// with "cursor home", colours are bold, dim, green, yellow and red. The time of
// a frame is the last word of its first line.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

func main() {
	light := flag.Bool("light", false, "for a light page")
	flag.Parse()
	colours := dark
	if *light {
		colours = bright
	}
	record, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	frames := parse(string(record))
	if len(frames) == 0 {
		fmt.Fprintln(os.Stderr, "terminal: the record on standard input has no frame")
		os.Exit(1)
	}
	w := bufio.NewWriter(os.Stdout)
	draw(w, frames, colours)
	if err := w.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A palette has the colours of a picture.
type palette struct{ screen, text, dim, red, green, yellow string }

var (
	dark   = palette{"#14181f", "#d8dee6", "#8b95a3", "#ff7b72", "#56d364", "#e3b341"}
	bright = palette{"#f6f8fa", "#1f2328", "#59636e", "#cf222e", "#116329", "#7d4e00"}
)

// A frame is one state of the screen.
type frame struct {
	at    time.Duration
	lines [][]span
}

// A span is text of one style.
type span struct {
	style string
	text  string
}

func (f frame) width() int {
	width := 0
	for _, line := range f.lines {
		n := 0
		for _, s := range line {
			n += utf8.RuneCountInString(s.text)
		}
		width = max(width, n)
	}
	return width
}

var (
	escape = regexp.MustCompile(`\x1b\[([0-9;?]*)([A-Za-z])`)
	styles = map[string]string{"1": "b", "2": "d", "31": "r", "32": "g", "33": "y"}
)

// parse splits a record into frames. What comes before the first one is no part
// of them; what stays on the screen after the table was left is the last.
func parse(record string) []frame {
	record = strings.NewReplacer("\r", "", "\x1b[?1049l", "\x1b[H").Replace(record)
	record, _, _ = strings.Cut(record, "\nScript done") // by script itself
	var frames []frame
	for _, text := range strings.Split(record, "\x1b[H")[1:] {
		text, _, _ = strings.Cut(text, "\x1b[J") // what is below the frame
		f := frame{lines: spans(text)}
		if len(f.lines) == 0 {
			continue
		}
		words := strings.Fields(plain(f.lines[0]))
		if at, err := time.ParseDuration(words[len(words)-1]); err == nil {
			f.at = at
			frames = append(frames, f)
		}
	}
	return frames
}

// spans splits text into lines of styled text, without empty lines at the end.
func spans(text string) [][]span {
	var lines [][]span
	style := ""
	for line := range strings.SplitSeq(text, "\n") {
		var parts []span
		for line != "" {
			at := escape.FindStringSubmatchIndex(line)
			if at == nil {
				parts = append(parts, span{style, line})
				break
			}
			if at[0] > 0 {
				parts = append(parts, span{style, line[:at[0]]})
			}
			if line[at[4]:at[5]] == "m" {
				style = styles[line[at[2]:at[3]]]
			}
			line = line[at[1]:]
		}
		lines = append(lines, parts)
	}
	for len(lines) > 0 && plain(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func plain(line []span) string {
	var text strings.Builder
	for _, s := range line {
		text.WriteString(s.text)
	}
	return strings.TrimSpace(text.String())
}

const (
	charWidth  = 7.85
	lineHeight = 17
	margin     = 14
	rest       = 3 * time.Second // how long the last frame stays
)

// draw writes the frames as an SVG that shows them at their times, again and
// again. Where nothing may move, and in viewers that cannot, the last one
// stays.
func draw(w io.Writer, frames []frame, colours palette) {
	columns, rows := 0, 0
	for _, f := range frames {
		columns, rows = max(columns, f.width()), max(rows, len(f.lines))
	}
	width, height := float64(columns)*charWidth+2*margin, rows*lineHeight+2*margin
	total := frames[len(frames)-1].at + rest

	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-label="go run ./example on a terminal">`+"\n",
		width, height, width, height)
	fmt.Fprintf(w, `<style>
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:%s;white-space:pre}
.b{font-weight:bold}.d{fill:%s}.r{fill:%s}.g{fill:%s}.y{fill:%s}
.f{visibility:hidden}.f:last-child{visibility:visible}
@media (prefers-reduced-motion:no-preference){.f,.f:last-child{visibility:hidden}
`, colours.text, colours.dim, colours.red, colours.green, colours.yellow)
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(total) }
	for i, f := range frames {
		end := total
		if i+1 < len(frames) {
			end = frames[i+1].at
		}
		fmt.Fprintf(w, ".f%d{animation:k%d %.1fs step-end infinite}@keyframes k%d{", i, i, total.Seconds(), i)
		if f.at > 0 {
			fmt.Fprint(w, "0%{visibility:hidden}")
		}
		fmt.Fprintf(w, "%.2f%%{visibility:visible}", percent(f.at))
		if end < total {
			fmt.Fprintf(w, "%.2f%%{visibility:hidden}", percent(end))
		}
		fmt.Fprintln(w, "}")
	}
	fmt.Fprintf(w, "}</style>\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"%s\"/>\n", colours.screen)
	for i, f := range frames {
		fmt.Fprintf(w, "<g class=\"f f%d\">\n", i)
		for row, line := range f.lines {
			if plain(line) == "" {
				continue
			}
			fmt.Fprintf(w, `<text x="%d" y="%d" xml:space="preserve">`, margin, margin+lineHeight*(row+1)-4)
			for _, s := range line {
				text := html.EscapeString(s.text)
				if s.style != "" {
					text = fmt.Sprintf(`<tspan class="%s">%s</tspan>`, s.style, text)
				}
				fmt.Fprint(w, text)
			}
			fmt.Fprintln(w, "</text>")
		}
		fmt.Fprintln(w, "</g>")
	}
	fmt.Fprintln(w, "</svg>")
}
