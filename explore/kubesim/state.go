// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// nameIn returns how an object is named in plans that is still to be made.
func nameIn(body []byte) string {
	var o struct {
		Metadata struct{ Name, GenerateName string }
	}
	if json.Unmarshal(body, &o) != nil {
		return ""
	}
	if o.Metadata.Name == "" && o.Metadata.GenerateName != "" {
		return o.Metadata.GenerateName + "*"
	}
	return o.Metadata.Name
}

// State describes all objects, except for events, leases and the namespaces of a new
// cluster, without what differs from plan to plan: times, versions, ids and what
// is generated of names. An observedGeneration is described as the current one or an old
// one.
func (s *Server) State() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, k := range s.kinds() {
		if k.Kind == "Event" || k.builtIn && k.Kind == "Lease" {
			continue
		}
		t := s.tables[k]
		for _, name := range slices.Sorted(maps.Keys(t.records)) {
			r := t.records[name]
			if k.builtIn && k.Kind == "Namespace" && slices.Contains(firstNamespaces, r.object.GetName()) && r.object.GetDeletionTimestamp() == nil {
				continue
			}
			if r.brief == "" {
				r.brief = s.brief(r)
			}
			all = append(all, r.brief)
		}
	}
	slices.Sort(all) // where there are generated names, the order of names is that of chance
	return strings.Join(all, "")
}

// brief describes one object.
func (s *Server) brief(r *record) string {
	var b strings.Builder
	o := withoutAnotherHand(r.object)
	fmt.Fprintf(&b, "%s %s\n", r.kind, s.nameOf(o))
	d := describer{s, &b, o.GetGeneration()}
	for _, name := range slices.Sorted(maps.Keys(o.Object)) {
		switch name {
		case "apiVersion", "kind":
		case "metadata":
			meta, _ := o.Object[name].(map[string]any)
			for _, field := range slices.Sorted(maps.Keys(meta)) {
				switch field {
				case "labels", "annotations", "finalizers":
					d.write(name+"."+field, meta[field])
				case "deletionTimestamp":
					b.WriteString("  is being deleted\n")
				case "ownerReferences":
					for _, ref := range o.GetOwnerReferences() {
						role := "owner"
						if ref.Controller != nil && *ref.Controller {
							role = "controller"
						}
						fmt.Fprintf(&b, "  %s: %s %s\n", role, ref.Kind, s.patternOf(ref.Name))
					}
				}
			}
		default:
			d.write(name, o.Object[name])
		}
	}
	return b.String()
}

type describer struct {
	*Server
	b          *strings.Builder
	generation int64
}

func (d describer) write(path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.SortedFunc(maps.Keys(v), func(a, b string) int { return cmp.Or(strings.Compare(d.text(a), d.text(b)), strings.Compare(a, b)) }) {
			d.write(path+"."+d.text(name), v[name])
		}
	case []any:
		for i, one := range v {
			d.write(fmt.Sprintf("%s[%d]", path, i), one)
		}
	case string:
		fmt.Fprintf(d.b, "  %s: %s\n", path, d.text(v))
	case int64:
		if strings.HasSuffix(path, ".observedGeneration") {
			which := "an old one"
			if v == d.generation {
				which = "the current one"
			}
			fmt.Fprintf(d.b, "  %s: %s\n", path, which)
			return
		}
		fmt.Fprintf(d.b, "  %s: %d\n", path, v)
	default:
		fmt.Fprintf(d.b, "  %s: %v\n", path, v)
	}
}

var (
	aTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	anID  = regexp.MustCompile(uidPrefix + `\d{12}`)
)

// text is a value without times, ids and generated names.
func (d describer) text(v string) string {
	if strings.Contains(v, "T") { // most have none
		v = aTime.ReplaceAllString(v, "(a time)")
	}
	if strings.Contains(v, uidPrefix) {
		v = anID.ReplaceAllString(v, "(an id)")
	}
	return d.patternOf(v)
}

// patternOf returns a name, or a text that has names in it, with asterisks for ids and for
// what is generated.
func (s *Server) patternOf(name string) string {
	if len(s.patterns) > 0 {
		if s.generated == nil { // a longer name may begin with a shorter one
			var pairs []string
			for _, name := range slices.SortedFunc(maps.Keys(s.patterns), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) {
				pairs = append(pairs, name, s.patterns[name])
			}
			s.generated = strings.NewReplacer(pairs...)
		}
		name = s.generated.Replace(name)
	}
	if strings.Contains(name, uidPrefix) {
		name = anID.ReplaceAllString(name, "*")
	}
	return name
}

// nameOf names an object in plans: a generated name by what it is generated from.
func (s *Server) nameOf(o *unstructured.Unstructured) string {
	name := s.patternOf(o.GetName())
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + name
	}
	return name
}
