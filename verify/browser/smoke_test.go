// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

// Package browser tests the page of package statuspage in Chromium: its script, which no
// test over HTTP runs.
package browser

import (
	"strings"
	"testing"
)

// TestSmoke opens an empty page, and adds items then. The page is the same
// all the time: a mark that is put on it stays.
func TestSmoke(t *testing.T) {
	w := newWorld(t)
	tb := open(t, w.page, "/")
	tb.wait(`document.querySelector('.empty')?.innerText.startsWith('No item is known')`)
	eval[bool](tb, "window.mark = true")
	w.run(t, "bucket/a", "bucket/b", "key/c")
	tb.waitNames("bucket/a bucket/b key/c")
	tb.wait(`document.querySelector('.tile.all .count').innerText === '3'`)
	tb.wait(`document.querySelector('#tiles a').innerText.startsWith('In sync\n3 of 3\nnext recheck in ')`)
	tb.wait(`document.title === '3 of 3 in sync · Reconcilers'`)
	if row := tb.text(".items tbody tr"); !strings.Contains(row, "in sync") || !strings.Contains(row, "in 1 h") && !strings.Contains(row, "in 5") || !strings.Contains(row, "succeeded") {
		t.Errorf("the first row is %q", row)
	}
	if !eval[bool](tb, "window.mark") {
		t.Error("the page was loaded again")
	}
}
