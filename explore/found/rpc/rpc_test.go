// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package rpc shows a connection of gRPC through which package explore injects faults.
package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reconkernel/reconcile/explore"
)

// A conn is what a generated client needs of a connection. Each unary call is a call of
// the process, and an injected fault has the status that a client sees in production.
type conn struct {
	proc  *explore.Process
	serve func(ctx context.Context, method string, request any) (proto.Message, error)
}

func (c conn) Invoke(ctx context.Context, method string, request, response any, _ ...grpc.CallOption) error {
	err := c.proc.Do(ctx, method, func() error {
		answer, err := c.serve(ctx, method, request)
		if err == nil {
			proto.Merge(response.(proto.Message), answer)
		}
		return err
	})
	switch {
	case errors.Is(err, explore.ErrInjected):
		return status.Error(codes.Unavailable, err.Error())
	case err != nil:
		return status.Convert(err).Err()
	}
	return nil
}

func (c conn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "streams have no faults here")
}

// A ward is a fake service: it notes whether anybody saw it healthy.
type ward struct{ seen bool }

func (w *ward) serve(context.Context, string, any) (proto.Message, error) {
	w.seen = true
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// watch asks until it has an answer. A faulty one gives up after the first error.
func watch(ctx context.Context, client grpc_health_v1.HealthClient, faulty bool, report func()) error {
	for ctx.Err() == nil {
		r, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil && r.Status == grpc_health_v1.HealthCheckResponse_SERVING {
			report()
			return nil
		}
		if faulty && status.Code(err) == codes.Unavailable {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

func TestConn(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		r, err := explore.Search(t, explore.Scenario[*ward]{
			World: func() *ward { return &ward{} },
			Start: func(proc *explore.Process, w *ward) {
				client := grpc_health_v1.NewHealthClient(conn{proc, w.serve})
				proc.Go(func(ctx context.Context) error { return watch(ctx, client, faulty, func() { w.seen = true }) })
			},
			Steps: func(env *explore.Environment, _ *ward) { env.Advance(time.Minute) },
			State: func(w *ward) string {
				if w.seen {
					return "seen"
				}
				return "not seen"
			},
			Plans: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
		want := "call /grpc.health.v1.Health/Check #1: fails"
		switch {
		case !faulty && r.Found != nil:
			t.Error(r.Found)
		case faulty && (r.Found == nil || strings.Join(r.Found.Plan, "; ") != want):
			t.Errorf("exploring finds %v, want %s", r.Found, want)
		}
	}
}
