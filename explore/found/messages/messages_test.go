// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/found/figures"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"
	"gocloud.dev/pubsub/mempubsub"
)

type harness struct{}

func (harness) CreateTopic(context.Context, string) (driver.Topic, func(), error) {
	return &topic{}, func() {}, nil
}

func (harness) MakeNonexistentTopic(context.Context) (driver.Topic, error) { return (*topic)(nil), nil }

func (harness) CreateSubscription(_ context.Context, t driver.Topic, _ string) (driver.Subscription, func(), error) {
	return t.(*topic).subscribe(time.Second), func() {}, nil
}

func (harness) MakeNonexistentSubscription(context.Context) (driver.Subscription, func(), error) {
	return (*subscription)(nil), func() {}, nil
}
func (harness) Close()                              {}
func (harness) MaxBatchSizes() (int, int)           { return 0, 0 }
func (harness) SupportsMultipleSubscriptions() bool { return true }

// The conformance tests of gocloud.dev/pubsub.
func TestConformance(t *testing.T) {
	drivertest.RunConformanceTests(t, func(context.Context, *testing.T) (drivertest.Harness, error) { return harness{}, nil }, nil)
}

// A shop has orders, which it says once, and sends them out.
type shop struct {
	orders []string
	sent   map[string]int
	calls  map[string]int
}

func (s *shop) order(stage *explore.Stage, name string) {
	s.orders = append(s.orders, name)
	stage.Event(name)
}

func send(ctx context.Context, k *explore.Kit, s *shop, name string) error {
	return k.Do(ctx, "send "+name, func() error {
		s.calls["send"]++
		s.sent[name]++
		return nil
	})
}

func byMessages(open func() (*pubsub.Topic, *pubsub.Subscription)) func(*explore.Kit, *shop) {
	return func(k *explore.Kit, s *shop) {
		k.Go(func(ctx context.Context) error {
			to, from := open()
			k.OnEvent(func(name any) {
				go func() { _ = to.Send(context.Background(), &pubsub.Message{Body: []byte(name.(string))}) }()
			})
			defer func() {
				_ = to.Shutdown(context.Background())
				_ = from.Shutdown(context.Background())
				time.Sleep(time.Second) // what they began may go on
			}()
			for {
				m, err := from.Receive(ctx)
				if err != nil {
					return nil
				}
				if send(ctx, k, s, string(m.Body)) != nil {
					time.Sleep(time.Second) // which they leave to who receives
					m.Nack()
					continue
				}
				m.Ack()
			}
		})
	}
}

func theirs() (*pubsub.Topic, *pubsub.Subscription) {
	t := mempubsub.NewTopic()
	return t, mempubsub.NewSubscription(t, 10*time.Minute)
}

func ours() (*pubsub.Topic, *pubsub.Subscription) {
	t, subscribe := NewTopic()
	return t, subscribe(10 * time.Minute)
}

func aLoop(k *explore.Kit, s *shop) {
	queue := reconcile.NewQueue[string]()
	k.OnEvent(func(name any) { queue.Enqueue(name.(string)) })
	k.Go(loop(queue, func(ctx context.Context) ([]string, error) {
		return explore.Read(ctx, k, "list orders", func() (open []string, _ error) {
			s.calls["list"]++
			return slices.DeleteFunc(slices.Clone(s.orders), func(name string) bool { return s.sent[name] > 0 }), nil
		})
	}, func(ctx context.Context, name string) error { return send(ctx, k, s, name) }).Run)
}

func scenario(start func(*explore.Kit, *shop)) explore.Scenario[*shop] {
	return explore.Scenario[*shop]{
		World: func() *shop { return &shop{sent: map[string]int{}, calls: map[string]int{}} },
		Start: start,
		Play: func(stage *explore.Stage, s *shop) {
			s.order(stage, "a")
			stage.Advance(time.Minute)
			s.order(stage, "b")
			stage.Advance(time.Minute)
		},
		State:   func(s *shop) string { return fmt.Sprint("sent: ", slices.Sorted(maps.Keys(s.sent))) },
		Without: []explore.Fault{explore.Lost},
		Within:  20 * time.Minute,
		Plans:   300,
	}
}

func TestMessages(t *testing.T) {
	for _, test := range []struct {
		name  string
		start func(*explore.Kit, *shop)
		lines string
		found string // "" if nothing is
	}{
		{"theirs, mempubsub", byMessages(theirs), figures.Lines(t, "gocloud.dev", "pubsub/mempubsub/mem.go"), "+ sent: [b]"},
		{"ours, a driver", byMessages(ours), figures.Lines(t, "", "messages.go"), "+ sent: [b]"},
		{"ours, a loop without messages", aLoop, figures.Lines(t, "", "loop.go"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			figures.Row(t, test.name, test.lines, figures.Found(t, scenario(test.start), test.found), hour(t, test.start))
		})
	}
}

// hour says which calls there are in an hour, in which each minute something is ordered.
func hour(t *testing.T, start func(*explore.Kit, *shop)) string {
	var calls map[string]int
	s := scenario(start)
	s.Replay, s.Within = []string{}, time.Minute
	s.Play = func(stage *explore.Stage, s *shop) {
		for i := range 60 {
			s.order(stage, fmt.Sprint(i))
			stage.Advance(time.Minute)
		}
		calls = maps.Clone(s.calls)
	}
	if _, err := explore.Search(t, s); err != nil {
		t.Fatal(err)
	}
	return figures.Calls(calls)
}
