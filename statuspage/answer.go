// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"path"
	"time"
)

//go:embed page.html
var pageHTML string

//go:embed assets
var assets embed.FS

var templates = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number[int], "perSecond": perSecond, "shorten": shorten, "since": since, "took": took, "words": filter.words,
}).Parse(pageHTML))

// A frame is what all pages have around their regions.
type frame struct {
	Title string
	Lead  string // stands before the title; may be empty
	Home  string // the URL of the overview
	JSON  string // the URL of the same for programs
	Skip  bool   // it begins with a link to the items
	Live  bool   // it changes, and is kept up to date by a script
}

func (p *Page) frame(queue string) frame {
	return frame{Title: cmp.Or(p.Title, "Reconcilers"), Home: "./" + query{Size: defaultSize}.WithQueue(queue).String()}
}

// A refusal is an error with the status of the answer.
type refusal struct {
	error
	status int
}

func refuse(status int, format string, args ...any) error {
	return refusal{fmt.Errorf(format, args...), status}
}

// handle serves a pattern; an error of serve is the answer.
func (p *Page) handle(pattern string, serve func(http.ResponseWriter, *http.Request) error) {
	p.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			p.fail(w, r, err)
		}
	})
}

// fail writes an error in the form that the request asks for.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadRequest
	if r, ok := err.(refusal); ok {
		status = r.status
	}
	if wantsJSON(r) {
		p.json(w, r, status, map[string]string{"error": err.Error()})
	} else {
		p.html(w, r, status, "note-page", notePage{frame: p.frame(""), Heading: http.StatusText(status), Text: err.Error()})
	}
}

// A notePage is for an error, or lets choose between items that are shown alike.
type notePage struct {
	frame
	Heading, Text string
	Choices       []handle
}

func wantsJSON(r *http.Request) bool {
	return path.Ext(r.URL.Path) == ".json" || path.Base(r.URL.Path) == "events"
}

// html answers with a page.
func (p *Page) html(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	p.answer(w, r, status, "text/html; charset=utf-8", func(page io.Writer) error {
		return templates.ExecuteTemplate(page, name, data)
	})
}

// json answers a program.
func (p *Page) json(w http.ResponseWriter, r *http.Request, status int, v any) {
	p.answer(w, r, status, "application/json", func(data io.Writer) error {
		encoder := json.NewEncoder(data)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false) // nobody takes it for HTML, and URLs stay readable
		return encoder.Encode(v)
	})
}

func (p *Page) answer(w http.ResponseWriter, r *http.Request, status int, contentType string, write func(io.Writer) error) {
	var data bytes.Buffer
	if err := write(&data); err != nil { // a fault of this package
		p.log(r.Context(), "statuspage: cannot answer", "path", r.URL.Path, "err", err)
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	// Who reads slowly has the answer kept in memory, but not for long: a megabyte a
	// second will do. The server takes the deadline back after the answer.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout + time.Duration(data.Len())*time.Microsecond))
	w.WriteHeader(status)
	_, _ = w.Write(data.Bytes()) // if the reader is gone there is nobody to tell
}
