// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"embed"
	"html/template"
)

//go:embed page.html
var pageHTML string

//go:embed assets
var assets embed.FS

var templates = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number[int], "words": filter.words, "failed": outcome.failed,
}).Parse(pageHTML))

// The regions of a page are what is sent when it changes, each by the name of
// its template, which is the id of its element too.
var (
	overviewRegions = []string{"title", "queues", "alerts", "tiles", "charts", "items", "groups"}
	itemRegions     = []string{"item", "runs"}
)

// A frame is what both pages have around their regions.
type frame struct {
	Title string
	Lead  string // stands before the title; may be empty
	Home  string // the URL of the overview
	JSON  string // the URL of the same for programs
	Live  bool   // it changes, and is kept up to date by a script
}

func (p *Page) frame(queue string) frame {
	return frame{Title: cmp.Or(p.Title, "Reconcilers"), Home: "./" + query{Size: defaultSize}.withQueue(queue).String()}
}
