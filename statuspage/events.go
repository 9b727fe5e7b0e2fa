// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"
)

const (
	// writeTimeout is how long a reader may take for what it is sent.
	writeTimeout = 10 * time.Second

	// pingEvery is how often something is sent, if only to learn whether the
	// reader is still there.
	pingEvery = 15 * time.Second
)

// serveEvents sends the regions of a page that have changed, again and again
// until the reader goes. The query is that of the page: with an item it is the
// page of the item.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	render, err := p.renderer(r)
	if err != nil {
		p.fail(w, r, http.StatusNotFound, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // tells nginx to pass it on as it comes

	out := http.NewResponseController(w)
	timer := time.NewTimer(0)
	defer timer.Stop()
	sent := make(map[string]string)
	var last time.Time // when something was sent
	for {
		select {
		case <-r.Context().Done():
			return
		case <-timer.C:
		}
		regions, next := render()
		message := changes(regions, sent)
		if message == nil && time.Since(last) >= pingEvery {
			message = []byte(":\n\n")
		}
		if message != nil {
			// The server may have a limit for the whole answer; this one is for each part.
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := w.Write(message); err != nil {
				return
			}
			if err := out.Flush(); err != nil {
				if errors.Is(err, http.ErrNotSupported) {
					p.log(r.Context(), "statuspage: a handler around the page hides http.Flusher: no live page")
				}
				return
			}
			last = time.Now()
		}
		timer.Reset(min(time.Until(next), pingEvery))
	}
}

// renderer returns a function that renders the regions of the page that the
// request is for, and says when to do so again.
func (p *Page) renderer(r *http.Request) (func() (map[string]string, time.Time), error) {
	v := r.URL.Query()
	if !v.Has("item") {
		q, err := parseQuery(v)
		if err != nil {
			return nil, err
		}
		if _, _, err := p.overview(q); err != nil {
			return nil, err
		}
		return func() (map[string]string, time.Time) {
			o, next, _ := p.overview(q) // it went well above, and no loop goes away
			return renderRegions(overviewRegions, o), next
		}, nil
	}
	found, err := p.found(v)
	if len(found) > 1 {
		err = errAlike(found[0].text)
	}
	return func() (map[string]string, time.Time) {
		return renderRegions(itemRegions, p.newItemPage(found[0])), time.Now().Add(p.refresh())
	}, err
}

func renderRegions(names []string, data any) map[string]string {
	regions := make(map[string]string, len(names))
	for _, name := range names {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, name, data); err != nil {
			continue // the page itself cannot be shown then, and says so
		}
		regions[name] = b.String()
	}
	return regions
}

// changes returns the event that tells of the regions that are not as they were
// sent, nil if all are.
func changes(regions, sent map[string]string) []byte {
	maps.DeleteFunc(regions, func(name, html string) bool { was, ok := sent[name]; return ok && was == html })
	if len(regions) == 0 {
		return nil
	}
	maps.Copy(sent, regions)
	data, _ := json.Marshal(regions) // has no line break that could end the event early
	return fmt.Appendf(nil, "event: regions\ndata: %s\n\n", data)
}
