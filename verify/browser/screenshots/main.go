// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command screenshots takes the pictures of the live page for the documentation. From the
// root of the repository:
//
//	cp example/assets.json desired.json
//	go run ./example -http 127.0.0.1:8080 -assets desired.json -chaos -faults 0.35 &
//	cd verify && go run ./browser/screenshots -out ../docs/img
//
// It waits until some items fail. So change the region of three assets in desired.json
// just before, which the cloud rejects. The charts are full after 15 minutes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/reconkernel/reconcile/verify/browser"
)

func main() {
	log.SetFlags(0)
	url := flag.String("url", "http://127.0.0.1:8080/", "the `URL` of the page")
	out := flag.String("out", ".", "the `FOLDER` for the pictures")
	failing := flag.Int("failing", 2, "wait until at least `N` items fail")
	patience := flag.Duration("patience", 2*time.Minute, "wait so long for that")
	flag.Parse()
	if err := run(*url, *out, *failing, *patience); err != nil {
		log.Fatal(err)
	}
}

func run(url, out string, failing int, patience time.Duration) error {
	chromium, stop, err := browser.Start(context.Background())
	if err != nil {
		return err
	}
	defer stop()
	for _, shot := range []struct {
		name, scheme  string
		width, height int64
		scale         float64
		item          bool // the page of the first item, which fails
	}{
		{"status-light.png", "light", 1280, 860, 1.5, false},
		{"status-dark.png", "dark", 1280, 860, 1.5, false},
		{"status-item.png", "light", 1280, 700, 1.5, true},
	} {
		tab, closeTab := chromedp.NewContext(chromium)
		if err := chromedp.Do(tab, chromedp.EmulateViewport(shot.width, shot.height, chromedp.EmulateScale(shot.scale))); err != nil {
			return err
		}
		if _, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: shot.scheme}},
		}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(tab, patience)
		steps := []chromedp.Action[chromedp.Void]{chromedp.Navigate(url), waitFor(fmt.Sprintf("document.querySelectorAll('.items tr.failing').length >= %d", failing))}
		if shot.item {
			steps = append(steps,
				chromedp.Click(chromedp.CSS(".items tr.failing .name a")),
				chromedp.WaitVisible(chromedp.CSS("#runs tbody tr")))
		}
		if err := chromedp.Do(ctx, steps...); err != nil {
			cancel()
			return fmt.Errorf("%s: %w", shot.name, err)
		}
		picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		cancel()
		closeTab()
		if err != nil {
			return fmt.Errorf("%s: %w", shot.name, err)
		}
		if err := os.WriteFile(filepath.Join(out, shot.name), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits until an expression is true; it is looked at whenever the page
// changes.
func waitFor(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](`new Promise((resolve) => {
		const observer = new MutationObserver(() => (`+expression+`) && resolve(observer.disconnect()));
		observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	})`, chromedp.EvalAwaitPromise)
}
