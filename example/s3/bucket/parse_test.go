// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const text = `
# a comment
buckets:
  - name: invoices
    versioning: true
    tags: {team: finance, keep: "10"}
    policy:
      Version: 2012-10-17
      Statement:
        - Effect: Allow
          Principal: "*"
          Action: ["s3:GetObject"]
          Condition: {NumericLessThan: {"s3:max-keys": 10}, Bool: {"aws:SecureTransport": true}}
    markers:
      README: |
        Ask finance.
  - {name: bare}
`
	got, err := Parse("wishes.yaml", []byte(text))
	want := map[string]Wish{
		"invoices": {
			Versioning: true,
			Tags:       map[string]string{"team": "finance", "keep": "10"},
			Policy: `{"Statement":[{"Action":["s3:GetObject"],"Condition":{"Bool":{"aws:SecureTransport":true},"NumericLessThan":{"s3:max-keys":10}},` +
				`"Effect":"Allow","Principal":"*"}],"Version":"2012-10-17"}`,
			Markers: map[string]string{"README": "Ask finance.\n"},
		},
		"bare": {},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Parse returns\n%+v, %v, want\n%+v", got, err, want)
	}
}

func TestParseEmpty(t *testing.T) {
	for _, text := range []string{"buckets: []", `{"buckets": []}`, "{\n\t\"buckets\":\t[]\n}\n"} {
		if got, err := Parse("f", []byte(text)); err != nil || len(got) != 0 {
			t.Errorf("Parse(%q) returns %v, %v, want nothing and no error", text, got, err)
		}
	}
}

// Each problem is named with its line, and all of them at once.
func TestParseProblems(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", `f:1: nothing is in it; to wish for nothing, write buckets: []`},
		{"# a comment alone", `f:1: nothing is in it`},
		{"[]", `f:1: the file: want fields with values, not a list`},
		{"null", `f:1: the file: want fields with values, not nothing`},
		{"{}", `f:1: the file: buckets is missing; want a list of buckets, [] for none`},
		{"a: 1\nbuckets: []", `f:1: the file: unknown field "a"; there is buckets`},
		{"buckets: []\nbuckets: []", `f:2: the file: "buckets" is there twice, first in line 1`},
		{"buckets:", `f:1: buckets: want a list, not nothing; [] is an empty one`},
		{"buckets: {a: {}}", `f:1: buckets: want a list, not fields`},
		{"buckets: []\n---\nbuckets: []", `f:2: another document begins; want one alone`},
		{"buckets: [", `f:1: did not find expected node content`},
		{"buckets:\n  - name: a\n - name: b", `f:2: did not find expected key`},
		{"buckets: \"\x01\"", `f:1: control characters are not allowed`},
		{"buckets:\n- a-name", `f:2: bucket: want fields with values, not a-name`},
		{"buckets:\n- {}", `f:2: bucket: name is missing`},
		{"buckets:\n- versioning: true", `f:2: bucket: name is missing`},
		{"buckets:\n- name: ''", `f:2: bucket: name is missing`},
		{"buckets:\n- name: 2026", `f:2: bucket "2026": name: want a text, not 2026; put it in quotes`},
		{"buckets:\n- name: [a]", `f:2: bucket: name: want a text, not a list; put it in quotes`},
		{"buckets:\n- name: ab", `f:2: bucket "ab": its name is not valid; want 3 to 63 of a-z, 0-9, dot and hyphen`},
		{"buckets:\n- name: Abc", `f:2: bucket "Abc": its name is not valid`},
		{"buckets:\n- name: abc-", `f:2: bucket "abc-": its name is not valid`},
		{"buckets:\n- name: a..b", `f:2: bucket "a..b": its name is not valid; S3 has no names with two dots`},
		{"buckets:\n- name: 127.0.0.1", `f:2: bucket "127.0.0.1": its name is not valid; S3 has no names that are IP`},
		{"buckets:\n- name: abc\n- name: xyz\n- name: abc", `f:4: bucket "abc": there is one of that name in line 2 already`},
		{"buckets:\n- name: abc\n  name: xyz", `f:3: bucket "xyz": "name" is there twice, first in line 2`},
		{"buckets:\n- name: abc\n  Tags: {}", `f:3: bucket "abc": unknown field "Tags"; there are name, versioning, tags, policy, markers`},
		{"buckets:\n- name: abc\n  [a]: b", `f:3: bucket "abc": the name of a field is a list, want a text`},
		{"buckets:\n- name: abc\n  versioning: yes", `f:3: bucket "abc": versioning: want true or false, not yes`},
		{"buckets:\n- name: abc\n  versioning: \"true\"", `f:3: bucket "abc": versioning: want true or false`},
		{"buckets:\n- name: abc\n  versioning: {}", `f:3: bucket "abc": versioning: want true or false, not fields`},
		{"buckets:\n- name: abc\n  tags: [a]", `f:3: bucket "abc": tags: want fields with values, not a list`},
		{"buckets:\n- name: abc\n  tags: {keep: 10}", `f:3: bucket "abc": tag "keep": want a text, not 10; put it in quotes`},
		{"buckets:\n- name: abc\n  tags:\n    a:", `f:4: bucket "abc": tag "a": want a text, not nothing`},
		{"buckets:\n- name: abc\n  tags: {a: b, a: c}", `f:3: bucket "abc": tags: "a" is there twice`},
		{"buckets:\n- name: abc\n  tags: {reconcile-owner: me}", `f:3: bucket "abc": tag "reconcile-owner": this one is the controller's own`},
		{"buckets:\n- name: abc\n  tags: {\"AWS:x\": b}", `f:3: bucket "abc": tag "AWS:x": those with aws: in front`},
		{"buckets:\n- name: abc\n  tags: {\"a,b\": c}", `f:3: bucket "abc": tag "a,b": want 1 to 128 letters`},
		{"buckets:\n- name: abc\n  tags: {a: \"?\"}", `f:3: bucket "abc": tag "a": the value is "?", want at most 256 letters`},
		{"buckets:\n- name: abc\n  tags: {" + strings.Repeat("a", 129) + ": b}", `: want 1 to 128 letters`},
		{"buckets:\n- name: abc\n  tags: {a: " + strings.Repeat("b", 257) + "}", `want at most 256 letters`},
		{"buckets:\n- name: abc\n  markers: {\"../x\": y}", `f:3: bucket "abc": marker "../x": want 1 to 100 letters`},
		{"buckets:\n- name: abc\n  markers: {x: 1}", `f:3: bucket "abc": marker "x": want a text, not 1`},
		{"buckets:\n- name: abc\n  markers: {x: " + strings.Repeat("y", maxMarker+1) + "}", `f:3: bucket "abc": marker "x": the text has 65537 bytes, want at most 65536`},
		{"buckets:\n- name: abc\n  policy: \"{}\"", `f:3: bucket "abc": policy: want an object with Version and Statement`},
		{"buckets:\n- name: abc\n  policy: {Version: \"1\"}", `f:3: bucket "abc": policy: Statement is missing`},
		{"buckets:\n- name: abc\n  policy: {Version: \"1\", Statement: [{Effect: a, Effect: b}]}", `: "Effect" is there twice`},
		{"buckets:\n- name: abc\n  policy: {Version: \"1\", Statement: .nan}", `f:3: bucket "abc": policy: json`},
		{"buckets:\n- &a {name: abc}\n- *a", `f:3: bucket: *a: aliases are not understood here`},
		{"buckets:\n- name: abc\n  tags: &a {x: \"1\"}\n- name: xyz\n  tags: *a", `f:5: bucket "xyz": tags: *a: aliases are not understood here`},
		{"buckets:\n- name: abc\n  policy: &a {Version: \"1\", Statement: *a}", `aliases are not understood here`},
	} {
		got, err := Parse("f", []byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || got != nil {
			t.Errorf("Parse(%q) returns %v and the error\n%v\nwant one with\n%s", test.text, got, err, test.want)
		}
	}

	_, err := Parse("f", []byte("buckets:\n- name: Abc\n- {}\n- name: xyz\n  color: red\n"))
	if want := 3; err == nil || strings.Count(err.Error(), "\n") != want-1 {
		t.Errorf("the error is\n%v\nwant %d lines", err, want)
	}
}

func TestParseTags(t *testing.T) {
	for n, good := range map[int]bool{maxTags: true, maxTags + 1: false} {
		var b strings.Builder
		b.WriteString("buckets:\n- name: abc\n  tags:\n")
		for i := range n {
			fmt.Fprintf(&b, "    t%d: \"1\"\n", i)
		}
		if _, err := Parse("f", []byte(b.String())); (err == nil) != good {
			t.Errorf("with %d tags the error is %v", n, err)
		}
	}
}

func TestParseOne(t *testing.T) {
	got, err := ParseOne("key abc", "abc", []byte("versioning: true"))
	if want := (Wish{Versioning: true}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ParseOne returns %+v, %v, want %+v", got, err, want)
	}
	for _, test := range []struct{ name, text, want string }{
		{"abc", "name: abc", `key:1: bucket "abc": unknown field "name"; there are versioning, tags, policy, markers`},
		{"ABC", "{}", `key:1: bucket "ABC": its name is not valid`},
		{"abc", "", `key:1: nothing is in it`},
	} {
		if _, err := ParseOne("key", test.name, []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseOne(%q, %q) returns the error %v, want %s", test.name, test.text, err, test.want)
		}
	}
}

// Whatever is in the file: there is no panic, and what is accepted is valid.
func FuzzParse(f *testing.F) {
	f.Add([]byte("buckets:\n- {name: abc, versioning: true, tags: {a: b}, policy: {Version: x, Statement: []}, markers: {c: d}}"))
	f.Add([]byte("buckets: [{name: &a abc, tags: *a}]"))
	f.Add([]byte("{\"buckets\": [{}, 1, null]}\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		wishes, err := Parse("f", data)
		if err != nil {
			if wishes != nil || !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("Parse returns %v and %v", wishes, err)
			}
			return
		}
		for name, wish := range wishes {
			if err := checkName(name); err != nil {
				t.Errorf("%q was accepted: %v", name, err)
			}
			if !wish.Equal(wish) || !samePolicy(wish.Policy, wish.Policy) {
				t.Errorf("%+v is not equal to itself", wish)
			}
			if _, mine := wish.Tags[OwnerTag]; mine || len(wish.Tags) > maxTags {
				t.Errorf("the tags %v were accepted", wish.Tags)
			}
		}
	})
}
