// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MarkerPrefix is where the markers of a bucket are. What is below it belongs to
// the controller, everything else in a bucket to those who use the bucket.
const MarkerPrefix = ".reconcile/"

// OwnerTag is the tag that says whose a bucket is.
const OwnerTag = "reconcile-owner"

const (
	maxTags   = 49 // S3 has room for 50, and the owner needs one
	maxMarker = 64 << 10
	maxPolicy = 20 << 10
)

var (
	validBucket = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	validMarker = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	validTag    = regexp.MustCompile(`^[\p{L}\p{N} +=._:/@-]*$`)
)

// Parse reads a file of wishes, in YAML or JSON. The error lists all that is
// wrong with it, each with the line.
func Parse(file string, data []byte) (map[string]Wish, error) {
	p := &parser{file: file, lines: map[string]int{}, wishes: map[string]Wish{}}
	if root := p.document(data); root != nil {
		list := false
		p.object("the file", root, func(field string, value *yaml.Node) {
			switch field {
			case "buckets":
				list = true
				p.list("buckets", value, func(n *yaml.Node) { p.bucket("", n) })
			default:
				p.problem(value, "the file: unknown field %q; there is buckets", field)
			}
		})
		if !list && p.problems == nil {
			p.problem(root, "the file: buckets is missing; want a list of buckets, [] for none")
		}
	}
	if p.problems != nil {
		return nil, errors.Join(p.problems...)
	}
	return p.wishes, nil
}

// ParseOne reads the wish for one bucket, in YAML or JSON, from a source that
// has each of its own under its name. Source is for the errors.
func ParseOne(source, name string, data []byte) (Wish, error) {
	p := &parser{file: source, lines: map[string]int{}, wishes: map[string]Wish{}}
	if root := p.document(data); root != nil {
		p.bucket(name, root)
	}
	if p.problems != nil {
		return Wish{}, errors.Join(p.problems...)
	}
	return p.wishes[name], nil
}

type parser struct {
	file     string
	lines    map[string]int // of the buckets
	wishes   map[string]Wish
	problems []error
}

func (p *parser) problem(at *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s:%d: %s", p.file, at.Line, fmt.Sprintf(format, args...)))
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document returns what is in the only document of a file. If there is none, or
// more than one, it notes the problem and returns nil.
func (p *parser) document(data []byte) *yaml.Node {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := d.Decode(&doc)
	if err == nil {
		if err = d.Decode(&more); err == nil {
			p.problem(&more, "another document begins; want one alone")
			return nil
		}
	} else if errors.Is(err, io.EOF) {
		p.problem(&yaml.Node{Line: 1}, "nothing is in it; to wish for nothing, write buckets: []")
		return nil
	}
	if !errors.Is(err, io.EOF) {
		line := 1
		if m := yamlError.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
			line, _ = strconv.Atoi(m[1])
		}
		p.problem(&yaml.Node{Line: line}, "%s", yamlError.ReplaceAllString(err.Error(), ""))
		return nil
	}
	return doc.Content[0]
}

// bucket reads one bucket. Its name is among the fields if it is not given.
func (p *parser) bucket(name string, n *yaml.Node) {
	what := "bucket"
	inside := name == ""
	if inside {
		// The name first, for the messages about the rest.
		for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			if n.Content[i].Value == "name" && n.Content[i+1].Kind == yaml.ScalarNode {
				name = n.Content[i+1].Value
			}
		}
	}
	if name != "" {
		what = fmt.Sprintf("bucket %q", name)
	}
	before := len(p.problems)
	var wish Wish
	p.object(what, n, func(field string, value *yaml.Node) {
		switch {
		case field == "name" && inside:
			p.text(what+": name", value)
		case field == "versioning":
			wish.Versioning = p.yesNo(what+": versioning", value)
		case field == "tags":
			wish.Tags = p.tags(what, value)
		case field == "policy":
			wish.Policy = p.policy(what, value)
		case field == "markers":
			wish.Markers = p.markers(what, value)
		default:
			fields := "versioning, tags, policy, markers"
			if inside {
				fields = "name, " + fields
			}
			p.problem(value, "%s: unknown field %q; there are %s", what, field, fields)
		}
	})
	first, twice := p.lines[name]
	switch {
	case len(p.problems) > before && name == "": // the problem is noted
	case name == "":
		p.problem(n, "bucket: name is missing")
	case twice:
		p.problem(n, "%s: there is one of that name in line %d already", what, first)
	default:
		if err := checkName(name); err != nil {
			p.problem(n, "%s: %v", what, err)
		}
		p.lines[name] = n.Line
		p.wishes[name] = wish
	}
}

// checkName says what is wrong with the name of a bucket, by the rules of S3.
func checkName(name string) error {
	switch _, err := netip.ParseAddr(name); {
	case !validBucket.MatchString(name):
		return errors.New("its name is not valid; want 3 to 63 of a-z, 0-9, dot and hyphen, first and last a letter or digit")
	case strings.Contains(name, "..") || strings.HasPrefix(name, "xn--") || strings.HasSuffix(name, "-s3alias"):
		return errors.New("its name is not valid; S3 has no names with two dots in a row, with xn-- in front or -s3alias at the end")
	case err == nil:
		return errors.New("its name is not valid; S3 has no names that are IP addresses")
	}
	return nil
}

func (p *parser) tags(what string, n *yaml.Node) map[string]string {
	tags := map[string]string{}
	p.object(what+": tags", n, func(key string, value *yaml.Node) {
		tag := fmt.Sprintf("%s: tag %q", what, key)
		text, ok := p.text(tag, value)
		switch {
		case key == OwnerTag:
			p.problem(value, "%s: this one is the controller's own", tag)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			p.problem(value, "%s: those with aws: in front are the store's own", tag)
		case key == "" || len(key) > 128 || !validTag.MatchString(key):
			p.problem(value, "%s: want 1 to 128 letters, digits, spaces and + - = . _ : / @", tag)
		case ok && (len(text) > 256 || !validTag.MatchString(text)):
			p.problem(value, "%s: the value is %q, want at most 256 letters, digits, spaces and + - = . _ : / @", tag, text)
		}
		tags[key] = text
	})
	if len(tags) > maxTags {
		p.problem(n, "%s: %d tags, want at most %d", what, len(tags), maxTags)
	}
	return tags
}

func (p *parser) markers(what string, n *yaml.Node) map[string]string {
	markers := map[string]string{}
	p.object(what+": markers", n, func(name string, value *yaml.Node) {
		marker := fmt.Sprintf("%s: marker %q", what, name)
		text, _ := p.text(marker, value)
		switch {
		case !validMarker.MatchString(name):
			p.problem(value, "%s: want 1 to 100 letters, digits, dots, hyphens and underscores, first a letter or digit", marker)
		case len(text) > maxMarker:
			p.problem(value, "%s: the text has %d bytes, want at most %d", marker, len(text), maxMarker)
		}
		markers[name] = text
	})
	return markers
}

// policy returns a policy as JSON. What it may say is the store's affair.
func (p *parser) policy(what string, n *yaml.Node) string {
	if n.Kind != yaml.MappingNode {
		p.problem(n, "%s: policy: want an object with Version and Statement", what)
		return ""
	}
	before := len(p.problems)
	fields := map[string]bool{}
	value := p.plain(what+": policy", n, fields)
	for _, field := range []string{"Version", "Statement"} {
		if !fields[field] {
			p.problem(n, "%s: policy: %s is missing", what, field)
		}
	}
	text, err := json.Marshal(value)
	switch {
	case len(p.problems) > before:
		return ""
	case err != nil:
		p.problem(n, "%s: policy: %v", what, err)
	case len(text) > maxPolicy:
		p.problem(n, "%s: policy: it has %d bytes, want at most %d", what, len(text), maxPolicy)
	}
	return string(text)
}

// plain turns a node into what encoding/json can write. It adds the fields of
// the outermost object to fields, unless that is nil.
func (p *parser) plain(what string, n *yaml.Node, fields map[string]bool) any {
	switch n.Kind {
	case yaml.MappingNode:
		object := map[string]any{}
		p.object(what, n, func(field string, value *yaml.Node) {
			object[field] = p.plain(what+": "+field, value, nil)
			if fields != nil {
				fields[field] = true
			}
		})
		return object
	case yaml.SequenceNode:
		list := []any{}
		p.list(what, n, func(value *yaml.Node) { list = append(list, p.plain(what, value, nil)) })
		return list
	case yaml.ScalarNode:
		// As it is written: 2012-10-17 is a text, not a time.
		switch n.Tag {
		case "!!bool", "!!int", "!!float":
			var value any
			if err := n.Decode(&value); err != nil {
				p.problem(n, "%s: %v", what, err)
			}
			return value
		}
		return n.Value
	}
	p.alias(what, n)
	return nil
}

// object calls read for each field of an object.
func (p *parser) object(what string, n *yaml.Node, read func(field string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		if !p.alias(what, n) {
			p.problem(n, "%s: want fields with values, not %s", what, kind(n))
		}
		return
	}
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			p.problem(key, "%s: the name of a field is %s, want a text", what, kind(key))
			continue
		}
		if line, twice := lines[key.Value]; twice {
			p.problem(key, "%s: %q is there twice, first in line %d", what, key.Value, line)
			continue
		}
		lines[key.Value] = key.Line
		read(key.Value, n.Content[i+1])
	}
}

func (p *parser) list(what string, n *yaml.Node, read func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		if !p.alias(what, n) {
			p.problem(n, "%s: want a list, not %s; [] is an empty one", what, kind(n))
		}
		return
	}
	for _, part := range n.Content {
		read(part)
	}
}

// text returns a text, which has to be one: yes, 1 and 2026-01-01 are others in
// YAML, and what came out would not be what stands there.
func (p *parser) text(what string, n *yaml.Node) (string, bool) {
	switch {
	case p.alias(what, n):
		return "", false
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str":
		p.problem(n, "%s: want a text, not %s; put it in quotes", what, kind(n))
		return "", false
	}
	return n.Value, true
}

func (p *parser) yesNo(what string, n *yaml.Node) bool {
	if p.alias(what, n) {
		return false
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || !slices.Contains([]string{"true", "false"}, n.Value) {
		p.problem(n, "%s: want true or false, not %s", what, kind(n))
	}
	return n.Value == "true"
}

// alias notes a problem if a node stands for another one.
func (p *parser) alias(what string, n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		p.problem(n, "%s: *%s: aliases are not understood here", what, n.Value)
		return true
	}
	return false
}

// kind says what a node is.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return n.Value
}
