// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// Assets are what is wanted: the specs, and their IDs in the order of the file,
// keys first.
type assets struct {
	specs map[cloud.ID]cloud.Spec
	order []cloud.ID
}

func (a *assets) add(id cloud.ID, spec cloud.Spec) {
	a.specs[id] = spec
	a.order = append(a.order, id)
}

var (
	sizes     = []string{"small", "medium", "large"}
	validName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)
)

// parse reads a file of assets. The error lists all that is wrong with it, each
// with the line.
func parse(file string, data []byte) (assets, error) {
	p := &parser{file: file, data: data, lines: map[cloud.ID]int{}}
	p.assets.specs = map[cloud.ID]cloud.Spec{}

	var all json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		offset := int64(0)
		if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
			offset = syntax.Offset
		}
		return assets{}, fmt.Errorf("%s:%d: %w", file, p.line(offset), err)
	}
	// The syntax is good, so errors of the decoder need no handling from here on.
	p.decoder = json.NewDecoder(bytes.NewReader(data))
	p.object("the file", func(field string) {
		switch field {
		case "keys":
			p.list(cloud.Key)
		case "buckets":
			p.list(cloud.Bucket)
		default:
			p.unknown("the file", field, "keys, buckets")
		}
	})
	p.checkKeys()
	if p.problems != nil {
		return assets{}, errors.Join(p.problems...)
	}
	slices.SortStableFunc(p.assets.order, func(a, b cloud.ID) int {
		return slices.Index(cloud.Kinds(), a.Kind) - slices.Index(cloud.Kinds(), b.Kind)
	})
	return p.assets, nil
}

type parser struct {
	file     string
	data     []byte
	decoder  *json.Decoder
	assets   assets
	lines    map[cloud.ID]int
	problems []error

	counted  int64 // up to there,
	newlines int   // there are so many
}

// line returns the line of a place, which is not before that of the last call.
func (p *parser) line(offset int64) int {
	p.newlines += bytes.Count(p.data[p.counted:offset], []byte("\n"))
	p.counted = offset
	return 1 + p.newlines
}

// here returns the line that was read last.
func (p *parser) here() int { return p.line(p.decoder.InputOffset()) }

func (p *parser) problem(line int, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

func (p *parser) unknown(what, field, accepted string) {
	p.problem(p.here(), "%s: unknown field %q; there are %s", what, field, accepted)
	p.skip()
}

// list reads the assets of one kind.
func (p *parser) list(kind string) {
	if !p.open('[', fmt.Sprintf("%ss: want a list", kind)) {
		return
	}
	for p.decoder.More() {
		p.asset(kind)
	}
	p.close()
}

func (p *parser) asset(kind string) {
	id, spec := cloud.ID{Kind: kind}, cloud.Spec{}
	what := func() string { return strings.TrimSuffix(id.String(), "/") }
	line := 0 // of the name, or else of the first field
	given := p.object(kind, func(field string) {
		if line == 0 || field == "name" {
			line = p.here()
		}
		switch {
		case field == "name":
			id.Name = p.name(kind)
		case field == "region":
			spec.Region = p.text(what() + ": region")
		case field == "labels":
			spec.Labels = p.labels(what())
		case field == "size" && kind == cloud.Bucket:
			if spec.Size = p.text(what() + ": size"); spec.Size != "" && !slices.Contains(sizes, spec.Size) {
				p.problem(p.here(), "%s: size %q; there are %s", what(), spec.Size, strings.Join(sizes, ", "))
			}
		case field == "key" && kind == cloud.Bucket:
			spec.Key = p.text(what() + ": key")
		case kind == cloud.Bucket:
			p.unknown(what(), field, "name, region, size, key, labels")
		default:
			p.unknown(what(), field, "name, region, labels")
		}
	})
	if given == nil {
		return
	}
	if line == 0 {
		line = p.here()
	}
	for _, field := range []string{"name", "region"} {
		if !given[field] {
			p.problem(line, "%s: %s is missing", what(), field)
		}
	}
	if id.Name == "" {
		return // the problem was noted
	}
	if first, twice := p.lines[id]; twice {
		p.problem(line, "%s: there is one of that name in line %d already", id, first)
		return
	}
	if kind == cloud.Bucket && !given["size"] {
		spec.Size = sizes[0]
	}
	p.lines[id] = line
	p.assets.add(id, spec)
}

// name reads a name. It returns "" if that is not valid.
func (p *parser) name(kind string) string {
	name := p.text(kind + ": name")
	if name != "" && !validName.MatchString(name) {
		p.problem(p.here(), "%s: name %q; want 1 to 63 of a-z, 0-9, dot and hyphen, first a letter or digit", kind, name)
		return ""
	}
	return name
}

// checkKeys finds buckets whose keys are not in the file.
func (p *parser) checkKeys() {
	for _, id := range p.assets.order {
		name := p.assets.specs[id].Key
		if _, ok := p.assets.specs[cloud.ID{Kind: cloud.Key, Name: name}]; name != "" && !ok {
			p.problem(p.lines[id], "%s: key %q is not among the keys of the file", id, name)
		}
	}
}

func (p *parser) labels(what string) map[string]string {
	labels := map[string]string{}
	p.object(what+": labels", func(label string) {
		labels[label] = p.text(fmt.Sprintf("%s: label %q", what, label))
	})
	return labels
}

// text reads a string that is not empty. It returns "" if something else is there.
func (p *parser) text(what string) string {
	var raw json.RawMessage
	_ = p.decoder.Decode(&raw)
	var s string
	if json.Unmarshal(raw, &s) != nil || s == "" {
		p.problem(p.here(), "%s: want a text in quotes, not %s", what, raw)
	}
	return s
}

// object reads an object, with read for the value of each field, and returns
// which fields there were; nil if something else is there.
func (p *parser) object(what string, read func(field string)) map[string]bool {
	if !p.open('{', what+": want an object in braces") {
		return nil
	}
	fields := map[string]bool{}
	for p.decoder.More() {
		token, _ := p.decoder.Token()
		field := token.(string)
		if fields[field] {
			p.problem(p.here(), "%s: field %q is there twice", what, field)
		}
		fields[field] = true
		read(field)
	}
	p.close()
	return fields
}

// open reads the start of a list or an object. If something else is there, it
// skips that and reports false.
func (p *parser) open(want json.Delim, problem string) bool {
	rest := p.data[p.decoder.InputOffset():]
	if bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n:,"), []byte(want.String())) {
		_, _ = p.decoder.Token()
		return true
	}
	p.skip()
	p.problem(p.here(), "%s", problem)
	return false
}

func (p *parser) close() { _, _ = p.decoder.Token() }

func (p *parser) skip() {
	var raw json.RawMessage
	_ = p.decoder.Decode(&raw)
}
