// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"net"

	"github.com/reconkernel/reconcile/statuspage"
)

// addPage adds a member to the group that serves a live page of what the assets
// and the members do.
func addPage(group *statuspage.Group, assets statuspage.Part, address string) {
	page := statuspage.New(assets, group)
	page.Title = "Assets"
	page.AllowActions = true // whoever reaches the page may press the buttons
	group.Add("page", statuspage.Serve(address, page))
}

// pageURL returns a URL that a browser on this machine can open.
func pageURL(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if net.ParseIP(host).IsUnspecified() {
		host = ""
	}
	return "http://" + net.JoinHostPort(cmp.Or(host, "localhost"), port)
}
