// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const text = `
# a comment
buckets:
  - name: invoices
    versioning: true
    tags: {team: finance, keep: 10}
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
	got, err := Parse("desired.yaml", []byte(text))
	want := map[string]Spec{
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
	const fields = "; there are buckets, and in each name, versioning, tags, policy, markers"
	spec := func(text string) string { return "buckets:\n- name: abc\n- name: xyz\n  " + text }
	var many strings.Builder
	for i := range maxTags + 1 {
		fmt.Fprintf(&many, "t%d: x, ", i)
	}
	for _, test := range []struct {
		text string
		want []string // begins of the lines of the error
	}{
		{"# a comment alone", []string{`f:1: nothing is in it` + fields}},
		{"[]", []string{`f:1: want the field buckets, not a list`}},
		{"buckets: {a: b}", []string{`f:1: want a list of buckets, [] for none, not fields with values`}},
		{spec("tags: [a]\n  markers: {a: [b]}"), []string{`f:4: want names with texts, not a list`, `f:5: want a text, not a list`}},
		{"buckets:", []string{`f:1: buckets is missing; want a list of buckets, [] for none`}},
		{"buckets:\n-\n", []string{`f:2: there is null`}}, // which must not remove a bucket
		{
			spec("versioning:\n  tags:\n  markers: {a: , b: ~}\n  policy: {Version: 1, Statement: [{a: null}]}"),
			[]string{`f:4: there is null`, `f:5: there is null`, `f:6: there is null`, `f:6: there is null`},
		},
		{"buckets: []\n---\nbuckets: []", []string{`f: more follows; want one document alone`}},
		{"buckets:\n  - name: a\n - name: b", []string{`f:2: did not find expected key`}},
		{"buckets: \"\x01\"", []string{`f:1: control characters are not allowed`}},
		{
			"a: 1\nbuckets:\n- {name: abc, name: xyz}\n- colour: red\n  versioning: perhaps\n- a-name",
			[]string{
				`f:1: unknown field "a"` + fields,
				`f:3: mapping key "name" already defined at line 3`,
				`f:4: unknown field "colour"` + fields, `f:5: want true or false, not "perhaps"`, `f:6: want the fields of a bucket, not "a-name"`,
			},
		},
		{"buckets:\n- {}", []string{`f:2: bucket "": its name is not valid; want 3 to 63 of a-z, 0-9, dot and hyphen`}},
		{
			"buckets:\n- name: abc-\n- name: a..b\n- name: 127.0.0.1\n- name: xyz\n- name: xyz\n",
			[]string{
				`f:2: bucket "abc-": its name is not valid`,
				`f:3: bucket "a..b": its name is not valid; S3 has no names with two dots`,
				`f:4: bucket "127.0.0.1": its name is not valid; S3 has no names that are IP`,
				`f:6: bucket "xyz": there is one of that name in line 5 already`,
			},
		},
		{
			spec(`tags: {reconcile-owner: me, "AWS:x": b, "a,b": c, d: "?"}`),
			[]string{
				`f:3: bucket "xyz": tag "AWS:x": those with aws: in front`,
				`f:3: bucket "xyz": tag "a,b": want 1 to 128 letters`,
				`f:3: bucket "xyz": tag "d": the value is "?", want at most 256 letters`,
				`f:3: bucket "xyz": tag "reconcile-owner": this one is the controller's own`,
			},
		},
		{
			spec("tags: {" + strings.Repeat("a", 129) + ": x, b: " + strings.Repeat("b", 257) + "}"),
			[]string{`f:3: bucket "xyz": tag "aaa`, `f:3: bucket "xyz": tag "b": the value is "bbb`},
		},
		{spec("tags: {" + many.String() + "}"), []string{`f:3: bucket "xyz": 50 tags, want at most 49`}},
		{
			spec(`markers: {"../x": y, x: ` + strings.Repeat("y", maxMarker+1) + "}"),
			[]string{`f:3: bucket "xyz": marker "../x": want 1 to 100 letters`, `f:3: bucket "xyz": marker "x": the text has 65537 bytes, want at most 65536`},
		},
		{spec(`policy: {Version: "1"}`), []string{`f:3: bucket "xyz": policy: want an object with Version and Statement`}},
		{spec(`policy: {Version: "1", Statement: .nan}`), []string{`f:3: bucket "xyz": policy: json`}},
		{spec(`policy: {Version: "1", Statement: "` + strings.Repeat("y", maxPolicy) + `"}`), []string{`f:3: bucket "xyz": policy: it has`}},
	} {
		got, err := Parse("f", []byte(test.text))
		lines := strings.Split(fmt.Sprint(err), "\n")
		if err == nil || got != nil || !slices.EqualFunc(lines, test.want, strings.HasPrefix) {
			t.Errorf("Parse(%q) returns %v and the error\n%v\nwant one with\n%s", test.text, got, err, strings.Join(test.want, "\n"))
		}
	}
}

// Whatever is in the file: there is no panic, and what is accepted is valid.
func FuzzParse(f *testing.F) {
	f.Add([]byte("buckets:\n- {name: abc, versioning: true, tags: {a: b}, policy: {Version: x, Statement: []}, markers: {c: d}}"))
	f.Add([]byte("buckets: [{name: &a abc, tags: *a}]"))
	f.Add([]byte("{\"buckets\": [{}, 1, null]}\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		specs, err := Parse("f", data)
		if err != nil {
			if specs != nil || !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("Parse returns %v and %v", specs, err)
			}
			return
		}
		for name, spec := range specs {
			if err := checkName(name); err != nil {
				t.Errorf("%q was accepted: %v", name, err)
			}
			if !spec.Equal(spec) || !samePolicy(spec.Policy, spec.Policy) {
				t.Errorf("%+v is not equal to itself", spec)
			}
			if _, mine := spec.Tags[OwnerTag]; mine || len(spec.Tags) > maxTags {
				t.Errorf("the tags %v were accepted", spec.Tags)
			}
		}
	})
}
