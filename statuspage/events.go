// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// writeTimeout is how long a reader may take for what it is sent, and a sender for
	// a form.
	writeTimeout = 10 * time.Second

	// pingEvery is how often something is sent, if only to learn whether the
	// reader is still there.
	pingEvery = 15 * time.Second

	// maxStreams is how many pages are kept up to date at the same time.
	maxStreams = 100
)

// hashing is for what was sent: to keep it would take the page again for each reader.
var hashing = maphash.MakeSeed()

// The regions of a page are what is sent when it changes, each by the name of
// its template, which is the id of its element too.
var (
	overviewRegions = []string{"title", "queues", "alerts", "tiles", "charts", "items", "gates", "groups"}
	itemRegions     = []string{"item", "runs"}
)

// serveEvents sends the regions of a page that have changed, again and again
// until the reader goes. The query is that of the page: with an item it is the
// page of the item.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) error {
	load, regions, err := p.follow(r.URL.Query())
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // tells nginx to pass it on as it comes
	if r.Method == http.MethodHead {
		return nil // The client does not wait for an end: the stream would hold a place for nobody.
	}
	defer p.streams.Add(-1)
	if p.streams.Add(1) > maxStreams {
		h.Set("Retry-After", "10")
		return refuse(http.StatusServiceUnavailable, "%d pages are kept up to date already; this one can be loaded again", maxStreams)
	}
	out := http.NewResponseController(w)
	sent := make(map[string]uint64)
	var last time.Time // when something was sent
	for {
		page, next, err := load()
		if err != nil {
			return err
		}
		message := changes(regions, page, sent)
		if message == nil && time.Since(last) >= pingEvery {
			message = []byte(":\n\n")
		}
		if message != nil {
			// The server may have a limit for the whole answer; this one is for each part.
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := w.Write(message); err != nil {
				return nil // the reader is gone
			}
			if err := out.Flush(); err != nil {
				if errors.Is(err, http.ErrNotSupported) { // The browser comes again by itself.
					p.noFlush.Do(func() {
						p.log(r.Context(), "statuspage: a handler around the page hides http.Flusher: the page is updated every 5 seconds, and not live")
					})
					_, _ = io.WriteString(w, "retry: 5000\nevent: polled\ndata: 5\n\n")
				}
				return nil
			}
			last = time.Now()
			// Over HTTP/2 a deadline that passes ends the stream, also while nothing is sent.
			_ = out.SetWriteDeadline(time.Time{})
		}
		select {
		case <-r.Context().Done():
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // for what the server adds
			return nil
		case <-time.After(min(time.Until(next), pingEvery)):
		}
	}
}

// follow returns a function that returns the page that a query asks for, and when
// to load it again, and the regions of that page.
func (p *Page) follow(v url.Values) (load func() (page any, next time.Time, err error), regions []string, err error) {
	if !v.Has("item") {
		q, err := parseQuery(v)
		return func() (any, time.Time, error) { return p.overview(q) }, overviewRegions, err
	}
	found, err := p.found(v)
	if len(found) > 1 {
		err = errAlike(found[0].text)
	}
	return func() (any, time.Time, error) {
		return p.newItemPage(found[0]), time.Now().Add(p.refresh()), nil
	}, itemRegions, err
}

// changes renders the regions of a page, and returns the event that tells of those
// that are not as they were sent, nil if all are.
func changes(regions []string, page any, sent map[string]uint64) []byte {
	changed := make(map[string]string)
	for _, name := range regions {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, name, page); err != nil {
			continue // the page itself cannot be shown then, and says so
		}
		hash := maphash.Bytes(hashing, b.Bytes())
		if was, ok := sent[name]; !ok || was != hash {
			changed[name], sent[name] = b.String(), hash
		}
	}
	if len(changed) == 0 {
		return nil
	}
	data, _ := json.Marshal(changed) // has no line break that could end the event early
	return fmt.Appendf(nil, "event: regions\ndata: %s\n\n", data)
}
