// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package browser looks at the pages of package statuspage in Chromium.
package browser

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

// Start starts a headless Chromium with an empty profile. It runs until stop is
// called. New tabs of it are made with chromedp.NewContext and the context.
func Start(ctx context.Context) (browser context.Context, stop func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("these tests need Chromium (browser/ci.sh installs it): %w", err)
	}
	// The defaults are headless, without sync, and with a new folder for the
	// profile.
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // it may run as root, in a container
		chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(5*time.Minute), // a machine under load may take long to start it
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("no-pings", true),
	)
	ctx, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	browser, cancel := chromedp.NewContext(ctx)
	stop = func() {
		cancel()
		stopAllocator()
	}
	if err := chromedp.Do(browser); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start %s: %w", path, err)
	}
	return browser, stop, nil
}
