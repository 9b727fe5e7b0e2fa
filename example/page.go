// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

// addPage adds a member to the group that serves a live page of what the assets
// and the members do. It returns the URL of the page.
func addPage(group *statuspage.Group, assets statuspage.Part, address string) (string, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("-http: %w", err)
	}
	page := statuspage.New(assets, group)
	page.Title = "Assets"
	page.AllowActions = true // whoever reaches the page may press the buttons

	group.Add("page", reconcile.RunFunc(func(ctx context.Context) error {
		server := &http.Server{
			Handler:           page,
			ReadHeaderTimeout: 10 * time.Second,
			BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the pages that are open
		}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
		}
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(moment) != nil {
			_ = server.Close() // a browser keeps connections without asking for anything
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}))
	return pageURL(listener.Addr().(*net.TCPAddr)), nil
}

// pageURL returns a URL that a browser on this machine can open.
func pageURL(address *net.TCPAddr) string {
	if address.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", address.Port)
	}
	return "http://" + address.String()
}
