// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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

// An entry is one bucket of the file.
type entry struct {
	Name       string
	Versioning bool
	Tags       map[string]string
	Policy     yaml.Node
	Markers    map[string]string
}

type specFile struct{ Buckets []entry }

// Parse reads a file with the desired buckets, in YAML or JSON. The error lists all that is
// wrong with it, each with the line; or first all that cannot be read.
func Parse(file string, data []byte) (map[string]Spec, error) {
	p := &parser{file: file}
	var all specFile
	var doc yaml.Node
	var nodes struct{ Buckets []yaml.Node } // the same, with the lines
	if err := p.decode(data, &all, "buckets, and in each name, versioning, tags, policy, markers"); err != nil {
		return nil, err
	}
	if err := errors.Join(yaml.Unmarshal(data, &doc), doc.Decode(&nodes)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if all.Buckets == nil {
		return nil, fmt.Errorf("%s:1: buckets is missing; want a list of buckets, [] for none", file)
	}
	if p.noNull(&doc); p.problems != nil { // YAML leaves them out of the list
		return nil, errors.Join(p.problems...)
	}
	specs, lines := map[string]Spec{}, map[string]int{}
	for i, e := range all.Buckets {
		p.line = nodes.Buckets[i].Line
		if first, twice := lines[e.Name]; twice {
			p.problem("bucket %q: there is one of that name in line %d already", e.Name, first)
		}
		lines[e.Name] = p.line
		specs[e.Name] = p.spec(&e)
	}
	if p.problems != nil {
		return nil, errors.Join(p.problems...)
	}
	return specs, nil
}

type parser struct {
	file     string
	line     int // of what is being read
	problems []error
}

func (p *parser) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s:%d: %s", p.file, p.line, fmt.Sprintf(format, args...)))
}

var (
	yamlLine     = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)
	unknownField = regexp.MustCompile(`field (.*) not found in type .*`)
	wrongType    = regexp.MustCompile("(?s)cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.*)")
)

// types are the words for what a value may be that is of another type.
var types = map[string]string{
	"bucket.specFile": "the field buckets", "[]bucket.entry": "a list of buckets, [] for none",
	"bucket.entry": "the fields of a bucket", "map[string]string": "names with texts",
	"string": "a text", "bool": "true or false",
}

// decode reads the only document of a file, in which there may be these fields.
func (p *parser) decode(data []byte, into any, fields string) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	err := d.Decode(into)
	var all *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s:1: nothing is in it; there are %s", p.file, fields)
	case errors.As(err, &all):
		for _, text := range all.Errors {
			text = unknownField.ReplaceAllString(text, fmt.Sprintf("unknown field %q; there are %s", "$1", fields))
			if m := wrongType.FindStringSubmatch(text); m != nil {
				there := map[string]string{"seq": "a list", "map": "fields with values"}[m[1]]
				text = strings.TrimSuffix(text, m[0]) + fmt.Sprintf("want %s, not %s", types[m[3]], cmp.Or(there, strconv.Quote(m[2])))
			}
			p.problems = append(p.problems, p.place(text))
		}
		return errors.Join(p.problems...)
	case err != nil:
		return p.place(err.Error())
	case !errors.Is(d.Decode(new(yaml.Node)), io.EOF):
		return fmt.Errorf("%s: more follows; want one document alone", p.file)
	}
	return nil
}

// noNull notes where a value is missing. YAML takes that for null, and so for a spec
// to have nothing there. What is in a policy is the store's affair.
func (p *parser) noNull(n *yaml.Node) {
	if n.ShortTag() == "!!null" {
		p.line = n.Line
		p.problem("there is null; want a value, or leave out what it is for")
	}
	for i, part := range n.Content {
		inPolicy := n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "policy" && part.Kind == yaml.MappingNode
		if !inPolicy {
			p.noNull(part)
		}
	}
}

// place puts the place of an error of YAML in front, as all others have it.
func (p *parser) place(text string) error {
	line := "1"
	if m := yamlLine.FindStringSubmatch(text); m[1] != "" {
		line = m[1]
	}
	return fmt.Errorf("%s:%s: %s", p.file, line, yamlLine.ReplaceAllString(text, ""))
}

// spec returns a spec, and records its problems.
func (p *parser) spec(e *entry) Spec {
	what := fmt.Sprintf("bucket %q: ", e.Name)
	if err := checkName(e.Name); err != nil {
		p.problem("%s%v", what, err)
	}
	for _, key := range slices.Sorted(maps.Keys(e.Tags)) {
		value := e.Tags[key]
		switch {
		case key == OwnerTag:
			p.problem("%stag %q: this one is the controller's own", what, key)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			p.problem("%stag %q: those with aws: in front are the store's own", what, key)
		case key == "" || len(key) > 128 || !validTag.MatchString(key):
			p.problem("%stag %q: want 1 to 128 letters, digits, spaces and + - = . _ : / @", what, key)
		case len(value) > 256 || !validTag.MatchString(value):
			p.problem("%stag %q: the value is %q, want at most 256 letters, digits, spaces and + - = . _ : / @", what, key, value)
		}
	}
	if len(e.Tags) > maxTags {
		p.problem("%s%d tags, want at most %d", what, len(e.Tags), maxTags)
	}
	for _, marker := range slices.Sorted(maps.Keys(e.Markers)) {
		switch size := len(e.Markers[marker]); {
		case !validMarker.MatchString(marker):
			p.problem("%smarker %q: want 1 to 100 letters, digits, dots, hyphens and underscores, first a letter or digit", what, marker)
		case size > maxMarker:
			p.problem("%smarker %q: the text has %d bytes, want at most %d", what, marker, size, maxMarker)
		}
	}
	policy, err := policyOf(&e.Policy)
	if err != nil {
		p.problem("%spolicy: %v", what, err)
	}
	return Spec{Versioning: e.Versioning, Tags: e.Tags, Policy: policy, Markers: e.Markers}
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

// policyOf returns a policy as JSON. What it may say is the store's affair.
func policyOf(n *yaml.Node) (string, error) {
	if n.IsZero() {
		return "", nil
	}
	asWritten(n)
	var policy map[string]any
	if err := n.Decode(&policy); err != nil {
		return "", err
	}
	if policy["Version"] == nil || policy["Statement"] == nil {
		return "", errors.New("want an object with Version and Statement")
	}
	text, err := json.Marshal(policy)
	if err == nil && len(text) > maxPolicy {
		err = fmt.Errorf("it has %d bytes, want at most %d", len(text), maxPolicy)
	}
	return string(text), err
}

// asWritten makes texts of times: 2012-10-17 is the name of a version.
func asWritten(n *yaml.Node) {
	if n.Tag == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, part := range n.Content {
		asWritten(part)
	}
}
