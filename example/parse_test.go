// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

func TestParse(t *testing.T) {
	got, err := parse("f.json", []byte(`{
		"buckets": [{"labels": {"a": "b"}, "name": "x", "region": "us-east", "key": "k", "size": "large"}, {"name": "y", "region": "eu-west"}],
		"keys": [{"name": "k", "region": "us-east"}]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := assets{
		specs: map[cloud.ID]cloud.Spec{
			key("k"):    {Region: "us-east"},
			bucket("x"): {Region: "us-east", Size: "large", Key: "k", Labels: map[string]string{"a": "b"}},
			bucket("y"): {Region: "eu-west", Size: "small"},
		},
		order: []cloud.ID{key("k"), bucket("x"), bucket("y")}, // keys first
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parse gives\n%+v, want\n%+v", got, want)
	}
}

func TestParseShipped(t *testing.T) {
	a, err := parse("assets.json", shipped)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.order) != 14 {
		t.Errorf("there are %d assets, want the 14 that the other tests count on", len(a.order))
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string // all of the error
	}{
		{"empty", "", []string{"f.json:1: unexpected end of JSON input"}},
		{"cut off", "{\n\"keys\": [\n", []string{"f.json:3: unexpected end of JSON input"}},
		{"syntax", "{\n\"keys\": [],\n\"buckets\" []}", []string{"f.json:3: invalid character '[' after object key"}},
		{"more after the end", "{}\n{}", []string{"f.json:2: invalid character '{' after top-level value"}},
		{"not an object", "\n[1]", []string{"f.json:2: the file: want an object in braces"}},
		{"null", "null", []string{"f.json:1: the file: want an object in braces"}},
		{"unknown list", "{\n\"disks\": [{\"a\": []}],\n\"keys\": []}", []string{`f.json:2: the file: unknown field "disks"; there are keys, buckets`}},
		{"list twice", "{\"keys\": [],\n\"keys\": []}", []string{`f.json:2: the file: field "keys" is there twice`}},
		{"no list", `{"keys": {"name": "k"}}`, []string{"f.json:1: keys: want a list"}},
		{"no asset", "{\"keys\": [\n12]}", []string{"f.json:2: key: want an object in braces"}},
		{
			"empty values", "{\"buckets\": [\n{\"name\": \"\", \"region\": null,\n\"size\": \"\"}]}",
			[]string{
				`f.json:2: bucket: name: want a text in quotes, not ""`,
				"f.json:2: bucket: region: want a text in quotes, not null",
				`f.json:3: bucket: size: want a text in quotes, not ""`,
			},
		},
		{"empty asset", "{\"keys\": [\n{}]}", []string{"f.json:2: key: name is missing", "f.json:2: key: region is missing"}},
		{
			"unknown fields",
			"{\"keys\": [{\n\"name\": \"k\",\n\"size\": \"large\",\n\"region\": \"us-east\"}],\n\"buckets\": [{\"name\": \"b\", \"colour\": [1], \"region\": \"us-east\"}]}",
			[]string{
				`f.json:3: key/k: unknown field "size"; there are name, region, labels`,
				`f.json:5: bucket/b: unknown field "colour"; there are name, region, size, key, labels`,
			},
		},
		{
			"duplicate",
			"{\"buckets\": [\n{\"name\": \"b\", \"region\": \"us-east\"},\n{\"name\": \"c\", \"region\": \"us-east\"},\n{\"name\": \"b\", \"region\": \"us-east\"}]}",
			[]string{"f.json:4: bucket/b: there is one of that name in line 2 already"},
		},
		{
			"bad values",
			"{\"buckets\": [\n{\"name\": \"Big Bucket\", \"region\": \"us-east\"},\n{\"name\": \"b\",\n\"region\": 12,\n\"size\": \"huge\",\n\"labels\": {\"a\":\ntrue}}]}",
			[]string{
				`f.json:2: bucket: name "Big Bucket"; want 1 to 63 of a-z, 0-9, dot and hyphen, first a letter or digit`,
				"f.json:4: bucket/b: region: want a text in quotes, not 12",
				`f.json:5: bucket/b: size "huge"; there are small, medium, large`,
				`f.json:7: bucket/b: label "a": want a text in quotes, not true`,
			},
		},
		{
			"bad labels",
			`{"buckets": [{"name": "b", "region": "us-east", "labels": ["x"]}]}`,
			[]string{"f.json:1: bucket/b: labels: want an object in braces"},
		},
		{
			"label twice",
			`{"buckets": [{"name": "b", "region": "us-east", "labels": {"x": "1", "x": "2"}}]}`,
			[]string{`f.json:1: bucket/b: labels: field "x" is there twice`},
		},
		{
			"no such key",
			"{\"buckets\": [\n{\"name\": \"b\", \"region\": \"us-east\", \"key\": \"k\"}]}",
			[]string{`f.json:2: bucket/b: key "k" is not among the keys of the file`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse("f.json", []byte(test.text))
			if err == nil {
				t.Fatal("parse gives no error")
			}
			if got, want := err.Error(), strings.Join(test.want, "\n"); got != want {
				t.Errorf("parse gives the error\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The lines are counted right in a large file, too.
func TestParseLarge(t *testing.T) {
	var b strings.Builder
	b.WriteString("{\"buckets\": [\n")
	const n = 20_000
	for i := range n {
		fmt.Fprintf(&b, "{\"name\": \"b-%d\",\n\"region\": \"us-east\"},\n", i)
	}
	b.WriteString("{\"name\": \"last\", \"region\": 1}]}")
	_, err := parse("f.json", []byte(b.String()))
	if want := "f.json:40002: bucket/last: region: want a text in quotes, not 1"; err == nil || err.Error() != want {
		t.Errorf("parse gives the error %v, want %s", err, want)
	}
}

// Whatever is in the file, parse neither panics nor hangs, and says where.
func FuzzParse(f *testing.F) {
	f.Add(shipped)
	f.Add([]byte(`{"keys": [{"name": null, "labels": [{}], "x": {"y": [1, 2]}}], "buckets": 1, "": ""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parse("f.json", data)
		if err == nil && len(a.order) != len(a.specs) {
			t.Errorf("parse gives %d IDs and %d specs", len(a.order), len(a.specs))
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f.json:") {
			t.Errorf("the error does not begin with the place: %v", err)
		}
	})
}
