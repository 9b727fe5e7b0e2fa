// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kubetest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// A step is one request, and what is compared of its answer. In the path and the body,
// {uid PATH} and {version PATH} are those of what a GET of PATH answers, {continue} is that of the
// answer before.
type step struct {
	do, path, body, media string
	codeAlone             bool
}

// A side is one of the two servers.
type side struct {
	name string
	web  *http.Client
	host string
	more string // continue of the last list
}

func (s *side) ask(t *testing.T, method, path, body, media string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", media)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "compare/1")
	if strings.Contains(path, "partial=1") {
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
		if strings.Contains(path, "limit") {
			r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		}
	}
	w, err := s.web.Do(r)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", s.name, method, path, err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, text
}

var placeholder = regexp.MustCompile(`\{(uid|version|continue)( [^}]*)?\}`)

// fill puts in what the server itself has made.
func (s *side) fill(t *testing.T, text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		m := placeholder.FindStringSubmatch(p)
		if m[1] == "continue" {
			return s.more
		}
		_, body := s.ask(t, "GET", strings.TrimSpace(m[2]), "", "")
		var o struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		if err := json.Unmarshal(body, &o); err != nil {
			t.Fatalf("%s: %s: %v: %s", s.name, p, err, body)
		}
		if m[1] == "uid" {
			return o.Metadata.UID
		}
		return o.Metadata.ResourceVersion
	})
}

func (s *side) play(t *testing.T, x step) string {
	t.Helper()
	if x.media == "" {
		x.media = "application/json"
	}
	code, body := s.ask(t, x.do, s.fill(t, x.path), s.fill(t, x.body), x.media)
	if x.codeAlone {
		var status struct{ Reason string }
		_ = json.Unmarshal(body, &status) // an object has none
		return fmt.Sprintf("%d %s", code, status.Reason)
	}
	if strings.Contains(x.path, "watch=1") {
		var lines []string
		for d := json.NewDecoder(bytes.NewReader(body)); d.More(); {
			var e map[string]any
			if err := d.Decode(&e); err != nil {
				t.Fatalf("%s: %s %s: %v", s.name, x.do, x.path, err)
			}
			if o, ok := e["object"].(map[string]any); ok && e["type"] == "BOOKMARK" {
				delete(o, "spec")
				delete(o, "status")
			}
			lines = append(lines, pretty(normal("", e)))
		}
		return fmt.Sprintf("%d\n%s", code, strings.Join(lines, "\n"))
	}
	var v map[string]any
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Sprintf("%d %s", code, body)
	}
	if meta, ok := v["metadata"].(map[string]any); ok {
		s.more, _ = meta["continue"].(string)
	}
	return fmt.Sprintf("%d %s", code, pretty(normal("", v)))
}

func pretty(v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	anID      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	aTime     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	generated = regexp.MustCompile(`\bmade-[a-z0-9]{5}\b`)
	inStorage = regexp.MustCompile(`StorageError: .*AdditionalErrorMsg: `)
	aVersion  = regexp.MustCompile(`(?i)(version:? |current: |record \(|precondition \()\d+`)
)

// normal leaves out what two servers may differ in: times, ids, versions, owners of
// fields.
func normal(field string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if causes, ok := v["causes"].([]any); ok { // a server may find the same twice
			v["causes"] = slices.CompactFunc(causes, func(a, b any) bool { return pretty(a) == pretty(b) })
		}
		if resources, ok := v["resources"].([]any); ok { // in any order
			slices.SortFunc(resources, func(a, b any) int { return strings.Compare(pretty(a), pretty(b)) })
		}
		if verbs, ok := v["verbs"].([]any); ok {
			slices.SortFunc(verbs, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		}
		for name, one := range v {
			v[name] = normal(name, one)
		}
		delete(v, "managedFields")
		delete(v, "storageVersionHash")
		if v["creationTimestamp"] == nil {
			delete(v, "creationTimestamp")
		}
	case []any:
		for i := range v {
			v[i] = normal("", v[i])
		}
	case string:
		switch field {
		case "resourceVersion":
			if v != "" {
				return "(version)"
			}
		case "continue":
			return "(continue)"
		}
		v = anID.ReplaceAllString(v, "(id)")
		v = generated.ReplaceAllString(v, "made-(name)")
		v = inStorage.ReplaceAllString(v, "")
		v = aVersion.ReplaceAllString(v, "$1(version)")
		return aTime.ReplaceAllString(v, "(time)")
	}
	return v
}

// TestAsARealServer has the same requests answered by a kube-apiserver and by a Server.
func TestAsARealServer(t *testing.T) {
	const crds = "../../../explore/kubesim/testdata"
	real := kubetest.Shared(t)
	real.Kubectl(t, "apply", "-f", crds)
	real.Kubectl(t, "wait", "--for=condition=Established", "crd/widgets.example.com", "crd/gadgets.example.com", "--timeout=5m")
	web, err := rest.HTTPClientFor(real.Admin())
	if err != nil {
		t.Fatal(err)
	}
	theirs := &side{name: "kube-apiserver", web: web, host: real.Admin().Host}
	sim := kubesim.NewServer(kubesim.CRDs(t, crds)...)
	sim.NoCollector = true // that is another program
	local := httptest.NewServer(sim)
	defer local.Close()
	ours := &side{name: "kubesim", web: local.Client(), host: local.URL}
	for _, path := range []string{"/apis/example.com/v1/widgets", "/apis/example.com/v1/gadgets"} {
		kubetest.Eventually(t, func() error { // the endpoints come a moment after the condition
			if code, body := theirs.ask(t, "GET", path, "", ""); code != http.StatusOK {
				return fmt.Errorf("%s: %s", path, body)
			}
			return nil
		})
	}
	asked := 0
	for _, sequence := range sequences() {
		t.Run(sequence.name, func(t *testing.T) {
			asked += len(sequence.steps)
			var watches sync.WaitGroup // which take their time
			for i, x := range sequence.steps {
				var want, got string
				if !strings.Contains(x.path, "watch=1") {
					watches.Wait()
				}
				compare := func() {
					if got != want {
						t.Errorf("step %d: %s %s %s (-kube-apiserver +kubesim):\n%s", i, x.do, x.path, x.body, cmp.Diff(want, got))
					}
				}
				var both sync.WaitGroup
				both.Go(func() { want = theirs.play(t, x) })
				both.Go(func() { got = ours.play(t, x) })
				if strings.Contains(x.path, "watch=1") {
					watches.Go(func() { both.Wait(); compare() })
					continue
				}
				both.Wait()
				compare()
			}
			watches.Wait()
		})
	}
	t.Logf("%d requests", asked)
}
