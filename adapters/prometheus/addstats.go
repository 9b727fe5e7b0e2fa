// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// AddStats adds the figures that a function returns, for what has some of its own, such
// as the queue of adapters/nats/queue:
//
//	err := promadapter.AddStats(c, "nats_queue", "vms", q.Stats)
//
// S is a struct. Each exported field of it is a metric, with the label name: an unsigned
// integer counts what only rises, as LeasesLost is
// reconcile_nats_queue_leases_lost_total; an int or a bool is a gauge, as Full is
// reconcile_nats_queue_full, 1 if it is true. Fields of other types are left out, and so is a
// time.Duration, which counts nanoseconds.
//
// stats is called in each scrape; it must not block, and may be called from any
// goroutine. AddStats returns an error if c or stats is nil, if S is no struct with such
// fields, if the prefix is no part of a metric's name (small letters, digits and _) or
// begins with a word that other metrics have (queue, gate, listing, oldest, runs, held,
// failures), if two fields, of this S or of another, would be one metric, or if the name is
// empty, not UTF-8 or taken for that prefix.
func AddStats[S any](c *Collector, prefix, name string, stats func() S) error {
	switch {
	case c == nil:
		return errors.New("promadapter: AddStats needs a Collector, got nil")
	case stats == nil:
		return fmt.Errorf("promadapter: the function of stats %q is nil", name)
	case !prefixes.MatchString(prefix) || slices.Contains(taken, strings.Split(prefix, "_")[0]):
		return fmt.Errorf("promadapter: the prefix is %q, want small letters, digits and _, a letter first, and none of %s, as others have these", prefix, strings.Join(taken, ", "))
	}
	if err := checkName(name); err != nil {
		return err
	}
	figures := figuresOf(reflect.TypeFor[S](), prefix)
	if len(figures) == 0 {
		return fmt.Errorf("promadapter: stats %q are %v, want a struct with exported fields that are integers or bools", name, reflect.TypeFor[S]())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := make(map[string]string, len(figures)) // what each metric is of
	for _, f := range figures {
		if was := cmp.Or(of[f.metric], c.figures[f.metric]); was != "" && was != f.of {
			return fmt.Errorf("promadapter: stats %q: %s would be %s, which %s is already", name, f.of, f.metric, was)
		}
		of[f.metric] = f.of
	}
	key := statsKey{prefix, name}
	if c.stats[key] != nil {
		return fmt.Errorf("promadapter: there are stats %q with the prefix %q already; each needs a name of its own", name, prefix)
	}
	if c.stats == nil {
		c.stats, c.figures = make(map[statsKey]func(chan<- prometheus.Metric)), make(map[string]string)
	}
	maps.Copy(c.figures, of)
	c.stats[key] = func(ch chan<- prometheus.Metric) {
		s := reflect.ValueOf(stats())
		for _, f := range figures {
			switch v := s.Field(f.field); {
			case v.CanUint():
				counter(ch, f.desc, v.Uint(), name)
			case v.CanInt():
				gauge(ch, f.desc, float64(v.Int()), name)
			case v.Bool():
				gauge(ch, f.desc, 1, name)
			default:
				gauge(ch, f.desc, 0, name)
			}
		}
	}
	return nil
}

var prefixes = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// taken are the words that metrics of this package begin with, after reconcile.
var taken = []string{"queue", "gate", "listing", "oldest", "runs", "held", "failures"}

// statsKey is what stats are known by.
type statsKey struct{ prefix, name string }

// A figure is a field of a struct that is a metric.
type figure struct {
	field  int
	metric string
	of     string // the field's name, and whether it is counted
	desc   *prometheus.Desc
}

func figuresOf(t reflect.Type, prefix string) (figures []figure) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		metric, of := "reconcile_"+prefix+"_"+snake(f.Name), "the field "+f.Name
		switch zero := reflect.Zero(f.Type); {
		case !f.IsExported():
			continue
		case zero.CanUint():
			metric += "_total"
			of += ", which only rises"
		case !zero.CanInt() && f.Type.Kind() != reflect.Bool, f.Type == reflect.TypeFor[time.Duration]():
			continue
		}
		figures = append(figures, figure{i, metric, of, desc(metric, "The figure "+f.Name+".", "name")})
	}
	return figures
}

var words = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// snake makes leases_lost of LeasesLost.
func snake(name string) string {
	return strings.ToLower(words.ReplaceAllString(name, "${1}_${2}"))
}
