// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

const record = "Script started\r\n" +
	"\x1b[?1049h\x1b[?25l" +
	"\x1b[H\x1b[1m[--] 0 of 1  0.0s\x1b[0m\x1b[K\r\n<a> \x1b[32mfine\x1b[0m & well\x1b[K\r\n\x1b[K\x1b[J" +
	"a line of a log\r\n" +
	"\x1b[H\x1b[1m[##] 1 of 1  1.2s\x1b[0m\x1b[K\r\n<a>\x1b[K\r\n\x1b[K\x1b[J" +
	"\x1b[?25h\x1b[?1049l[##] 1 of 1, 1.3s\r\n<a>\r\nall in sync\r\n" +
	"\r\nScript done\r\n"

func TestParse(t *testing.T) {
	got := parse(record)
	want := []frame{
		{0, [][]span{{{"b", "[--] 0 of 1  0.0s"}}, {{"", "<a> "}, {"g", "fine"}, {"", " & well"}}}},
		{1200 * time.Millisecond, [][]span{{{"b", "[##] 1 of 1  1.2s"}}, {{"", "<a>"}}}},
		{1300 * time.Millisecond, [][]span{{{"", "[##] 1 of 1, 1.3s"}}, {{"", "<a>"}}, {{"", "all in sync"}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parse gave\n%v\nwant\n%v", got, want)
	}
	if got := parse("no frame at all\r\n"); len(got) != 0 {
		t.Errorf("parse of a record without frames gave %v", got)
	}
}

func TestDrawIsWellFormed(t *testing.T) {
	var svg strings.Builder
	draw(&svg, parse(record), dark)
	text, groups := "", 0
	for d := xml.NewDecoder(strings.NewReader(svg.String())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg.String())
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "g" {
				groups++
			}
		case xml.CharData:
			text += string(token)
		}
	}
	if groups != 3 || !strings.Contains(text, "<a> fine & well") {
		t.Errorf("%d frames and the text %q, want 3 frames and what was on the screen", groups, text)
	}
}
