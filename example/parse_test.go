// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

func TestParseErrors(t *testing.T) {
	const lists = "; want the lists keys and buckets"
	for _, test := range []struct {
		name, text string
		want       []string // all of the error
	}{
		{"cut off", "{\n\"keys\": [\n", []string{"f.json:3: unexpected end of JSON input" + lists}},
		{"more after the end", "{}\n{}", []string{"f.json:2: invalid character '{' after top-level value" + lists}},
		{"null", "null", []string{"f.json:1: there is null; want the lists keys and buckets"}},
		{"a list twice", `{"keys": [], "buckets": [{"name": "a"}], "buckets": []}`, []string{"f.json:1: there is a second list of the same name" + lists}},
		{"null for a list", `{"keys": null}`, []string{"f.json:1: there is null for a list; [] is an empty one" + lists}},
		{"no object", "[]", []string{"f.json:1: it: want an object, not array" + lists}},
		{"no list", `{"keys": {}}`, []string{"f.json:1: there is {} for a list; [] is an empty one" + lists}},
		{"unknown list", `{"disks": []}`, []string{`f.json:1: json: unknown field "disks"` + lists}},
		{"no asset", "{\"keys\": [\n{}]}", []string{`f.json:2: key: name ""; want 1 to 63 of a-z, 0-9, dot and hyphen, first a letter or digit`}},
		{
			"all at once, each in its line",
			`{"buckets": [{"name": "b", "region": "us-east"},
				{"name": "b",
					"region": "us-east"},
				{"name": "c", "region": "us-east", "colour": [1]},
				{"name": "d", "region": true},
				{"name": "e", "region": ""}, {"name": "f", "region": "us-east", "size": "huge"},
				{"name": "g", "region": "us-east", "key": "none"},
				{"name": "h", "region": "us-east", "key": "x"}, {"name": "i", "region": "us-east", "labels": null},
				{"name": "j", "region": "us-east", "labels": {"a": "1", "A": "2", "a": "3"}}, {"name": "l", "Name": "m", "region": "us-east"},
				null, 1],
			"keys": [
				{"name": "x", "region": "us-east", "colour": 1},
				{"name": "k", "region": "us-east", "size": "large"}]}`,
			[]string{
				`f.json:12: key/x: unknown field "colour"; there are name, region, labels`,
				`f.json:13: key/k: it has a size or a key; there are name, region, labels`,
				`f.json:2: bucket/b: there is one of that name in line 1 already`,
				`f.json:4: bucket/c: unknown field "colour"; there are name, region, size, key, labels`,
				`f.json:5: bucket/d: region: want a text in quotes, not bool; there are name, region, size, key, labels`,
				`f.json:6: bucket/e: region is missing`,
				`f.json:6: bucket/f: size "huge"; there are small, medium, large`,
				`f.json:8: bucket/i: there is null; want a value, or leave out what it is for; there are name, region, size, key, labels`,
				`f.json:9: bucket/j: "a" is there twice; there are name, region, size, key, labels`,
				`f.json:9: bucket/m: "Name" is there twice; there are name, region, size, key, labels`,
				`f.json:10: bucket: there is null; want a value, or leave out what it is for; there are name, region, size, key, labels`,
				`f.json:10: bucket: it: want an object, not number; there are name, region, size, key, labels`,
				`f.json:7: bucket/g: key "none" is not among the keys of the file`,
			},
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
