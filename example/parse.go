// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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

// An entry is an asset as it stands in the file.
type entry struct {
	Name string `json:"name"`
	cloud.Spec
}

// entries are a list that a file may not have twice: the second would replace the
// first, and its assets would go.
type entries []json.RawMessage

func (l *entries) UnmarshalJSON(data []byte) error {
	switch {
	case *l != nil:
		return errors.New("there is a second list of the same name")
	case string(data) == "null": // what is missing would go
		return errors.New("there is null for a list; [] is an empty one")
	case data[0] != '[': // of which releases of encoding/json say different things
		return fmt.Errorf("there is %.10s for a list; [] is an empty one", data)
	}
	return json.Unmarshal(data, (*[]json.RawMessage)(l))
}

// fields are those that an entry of a kind may have.
var fields = map[string]string{
	cloud.Key:    "name, region, labels",
	cloud.Bucket: "name, region, size, key, labels",
}

// parse reads a file of assets. The error lists all that is wrong with it, each
// with the line where the asset begins.
func parse(file string, data []byte) (assets, error) {
	p := &parser{file: file, data: data, lines: map[cloud.ID]int{}}
	p.assets.specs = map[cloud.ID]cloud.Spec{}
	var lists *struct {
		Keys    entries `json:"keys"`
		Buckets entries `json:"buckets"`
	}
	if err := decode(data, &lists); err != nil {
		line := 1
		if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
			line += bytes.Count(data[:syntax.Offset], []byte("\n"))
		}
		return assets{}, fmt.Errorf("%s:%d: %w; want the lists keys and buckets", file, line, err)
	}
	if lists == nil {
		return assets{}, fmt.Errorf("%s:1: there is null; want the lists keys and buckets", file)
	}
	p.list(cloud.Key, lists.Keys)
	p.list(cloud.Bucket, lists.Buckets)
	for _, id := range p.assets.order {
		if name := p.assets.specs[id].Key; name != "" && p.lines[cloud.ID{Kind: cloud.Key, Name: name}] == 0 {
			p.problem(p.lines[id], "%s: key %q is not among the keys of the file", id, name)
		}
	}
	if p.problems != nil {
		return assets{}, errors.Join(p.problems...)
	}
	return p.assets, nil
}

// kinds are the words for the types that are in a file.
var kinds = map[reflect.Kind]string{
	reflect.String: "a text in quotes", reflect.Slice: "a list", reflect.Map: "an object", reflect.Struct: "an object",
}

// decode is strict about names of fields and about what follows the end.
func decode(data []byte, into any) error {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
		return fmt.Errorf("%s: want %s, not %s", cmp.Or(field, "it"), kinds[wrong.Type.Kind()], wrong.Value)
	}
	return err
}

// check reads a value, and finds what encoding/json lets pass: null, which it takes
// for nothing, and a name that is there twice, of which it takes the last. In the
// names of fields, the outermost ones, upper and lower case are the same.
func check(d *json.Decoder, outermost bool) error {
	token, _ := d.Token() // the syntax is known to be good
	switch token {
	case nil:
		return errors.New("there is null; want a value, or leave out what it is for")
	case json.Delim('{'), json.Delim('['):
		names := map[string]bool{}
		for d.More() {
			if token == json.Delim('{') {
				field, _ := d.Token()
				name := field.(string)
				if outermost {
					name = strings.ToLower(name)
				}
				if names[name] {
					return fmt.Errorf("%q is there twice", field)
				}
				names[name] = true
			}
			if err := check(d, false); err != nil {
				return err
			}
		}
		_, _ = d.Token() // the end
	}
	return nil
}

type parser struct {
	file     string
	data     []byte
	assets   assets
	lines    map[cloud.ID]int
	problems []error
}

func (p *parser) problem(line int, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

// list reads the assets of one kind. What they are made of stands in the file
// as it is here, so that is where the lines are found.
func (p *parser) list(kind string, list []json.RawMessage) {
	rest, line := p.data, 1
	if i := bytes.Index(rest, []byte(`"`+kind+`s"`)); i >= 0 {
		line += bytes.Count(rest[:i], []byte("\n"))
		rest = rest[i:]
	}
	for _, text := range list {
		before, after, _ := bytes.Cut(rest, text)
		line += bytes.Count(before, []byte("\n"))
		p.asset(kind, text, line)
		line += bytes.Count(text, []byte("\n"))
		rest = after
	}
}

func (p *parser) asset(kind string, text []byte, line int) {
	var e entry
	err := cmp.Or(decode(text, &e), check(json.NewDecoder(bytes.NewReader(text)), true))
	id := cloud.ID{Kind: kind, Name: e.Name}
	if err != nil {
		p.lines[id] = line // a bucket may name this key
		p.problem(line, "%s: %s; there are %s", strings.TrimSuffix(id.String(), "/"), strings.TrimPrefix(err.Error(), "json: "), fields[kind])
		return
	}
	switch {
	case !validName.MatchString(e.Name):
		p.problem(line, "%s: name %q; want 1 to 63 of a-z, 0-9, dot and hyphen, first a letter or digit", kind, e.Name)
	case p.lines[id] > 0:
		p.problem(line, "%s: there is one of that name in line %d already", id, p.lines[id])
	case e.Region == "":
		p.problem(line, "%s: region is missing", id)
	case kind == cloud.Key && (e.Size != "" || e.Key != ""):
		p.problem(line, "%s: it has a size or a key; there are %s", id, fields[kind])
	case kind == cloud.Bucket && !slices.Contains(sizes, cmp.Or(e.Size, sizes[0])):
		p.problem(line, "%s: size %q; there are %s", id, e.Size, strings.Join(sizes, ", "))
	case kind == cloud.Bucket:
		e.Size = cmp.Or(e.Size, sizes[0])
	}
	p.lines[id] = line
	p.assets.add(id, e.Spec)
}
