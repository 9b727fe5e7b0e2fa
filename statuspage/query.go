// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A query says what is to be seen of the items of a loop. It is what stands
// behind the question mark of a URL.
type query struct {
	Queue      string
	Search     string
	State      filter
	Sort       sorting
	Descending bool
	Page       int
	Size       int
}

const (
	defaultSize = 50
	maxSize     = 1000
	maxSearch   = 200
)

// parseQuery reads a query. What is missing has its default; an error says what
// is wrong and what is accepted.
func parseQuery(v url.Values) (query, error) {
	by, descending := strings.CutPrefix(cmp.Or(v.Get("sort"), string(byAttention)), "-")
	q := query{
		Queue:      v.Get("queue"),
		Search:     v.Get("search"),
		State:      cmp.Or(filter(v.Get("state")), allItems),
		Sort:       sorting(by),
		Descending: descending,
		Page:       1,
		Size:       defaultSize,
	}
	switch {
	case len(q.Search) > maxSearch:
		return q, fmt.Errorf("search is too long: want at most %d bytes", maxSearch)
	case !slices.Contains(filters, string(q.State)):
		return q, fmt.Errorf("no state %q; there are %s", q.State, strings.Join(filters, ", "))
	case !slices.Contains(sortings, by):
		return q, fmt.Errorf("cannot sort by %q; there are %s, with a hyphen in front for the reverse", by, strings.Join(sortings, ", "))
	}
	for name, number := range map[string]*int{"page": &q.Page, "size": &q.Size} {
		if s := v.Get(name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				return q, fmt.Errorf("%s %q: want a number, 1 or more", name, s)
			}
			*number = n
		}
	}
	if q.Size > maxSize {
		return q, fmt.Errorf("size %d: want at most %d", q.Size, maxSize)
	}
	return q, nil
}

// finds returns a function that reports whether the query finds a row: whether it
// is of that state, and the name or the error contains the text, in any case.
func (q query) finds() func(r *row) bool {
	text := strings.ToLower(q.Search)
	return func(r *row) bool {
		return q.State.has(r) && (text == "" ||
			strings.Contains(strings.ToLower(r.text), text) || strings.Contains(strings.ToLower(r.Last.Error), text))
	}
}

// String returns the query as it stands in a URL, with the question mark, and
// without what has its default.
func (q query) String() string {
	v := url.Values{}
	set := func(name, value, standard string) {
		if value != standard {
			v.Set(name, value)
		}
	}
	set("queue", q.Queue, "")
	set("search", q.Search, "")
	set("state", string(q.State), string(allItems))
	set("sort", q.Order(), string(byAttention))
	set("page", strconv.Itoa(q.Page), "1")
	set("size", strconv.Itoa(q.Size), strconv.Itoa(defaultSize))
	return "?" + v.Encode()
}

// Order returns the order as it stands in a URL.
func (q query) Order() string {
	if q.Descending {
		return "-" + string(q.Sort)
	}
	return string(q.Sort)
}

// Sorted returns how the query sorts a column, as aria-sort has it; "" if it does
// not.
func (q query) Sorted(c column) string {
	switch {
	case q.Sort != c.By:
		return ""
	case q.Descending != c.down:
		return "descending"
	}
	return "ascending"
}

// Of these each returns the query with something changed, on its first page.

func (q query) WithState(f filter) query {
	q.State, q.Page = f, 1
	return q
}

func (q query) WithSort(s sorting) query {
	q.Descending = q.Sort == s && !q.Descending
	q.Sort, q.Page = s, 1
	return q
}

func (q query) WithQueue(name string) query {
	return query{Queue: name, State: allItems, Sort: byAttention, Page: 1, Size: q.Size}
}

func (q query) WithPage(n int) query {
	q.Page = n
	return q
}
