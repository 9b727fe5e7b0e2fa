// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// Serve returns a Runner that serves h at addr, such as "127.0.0.1:8080", or ":8080" for
// all interfaces of the machine. h is a [Page], or a handler in front of one. Add the
// Runner to a Group:
//
//	group.Add("page", statuspage.Serve("127.0.0.1:8080", page))
//
// Run logs the URL to the [reconcile.Logger] of its context and serves until the context
// ends. It then cancels the contexts of all requests, so that an open page does not delay
// the shutdown. Requests have one second to finish; then Run closes their connections.
// Run returns nil when no request is being handled.
//
// Run returns an error if addr is empty or cannot be listened on, for example because
// another program uses it. Run may be called again after it has returned.
func Serve(addr string, h http.Handler) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		switch {
		case addr == "":
			return reconcile.Terminal(errors.New("statuspage: Serve needs an address such as 127.0.0.1:8080, got none"))
		case h == nil:
			return reconcile.Terminal(errors.New("statuspage: Serve needs a Page or another http.Handler, got nil"))
		}
		logger := reconcile.Logger(ctx)
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("statuspage: Serve cannot use the address %q: %w", addr, err)
		}
		return serve(ctx, listener, h, logger)
	})
}

func serve(ctx context.Context, listener net.Listener, h http.Handler, logger *slog.Logger) error {
	log := guarded{logger.Handler()}
	slog.New(log).Info("page is served", "url", pageURL(listener.Addr()))
	var connections sync.WaitGroup
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(log, slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				connections.Add(1)
			case http.StateClosed, http.StateHijacked:
				connections.Done()
			}
		},
	}
	shut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shut)
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(moment) // a browser keeps connections without asking for anything
	})
	err := server.Serve(listener)
	if stop() {
		close(shut) // the listener broke
	}
	<-shut
	_ = server.Close()
	connections.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("statuspage: %w", err)
}

// A guarded log handler leaves out the lines on which another one panics. A server writes
// lines where nothing recovers a panic: one would end the process.
type guarded struct{ slog.Handler }

// Enabled reports false if the other handler panics.
func (g guarded) Enabled(ctx context.Context, level slog.Level) bool {
	defer func() { _ = recover() }()
	return g.Handler.Enabled(ctx, level)
}

// Handle returns no error if the other handler panics.
func (g guarded) Handle(ctx context.Context, r slog.Record) error {
	defer func() { _ = recover() }()
	return g.Handler.Handle(ctx, r)
}
