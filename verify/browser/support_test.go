// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a headless Chromium with an empty profile.
var browser context.Context

func TestMain(m *testing.M) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"),
		chromedp.NoSandbox, // it may run as root, in a container
		chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(5*time.Minute), // a machine under load may take long to start it
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("no-pings", true),
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "start Chromium, which browser/ci.sh installs:", err)
		os.Exit(1)
	}
	browser = ctx
	code := m.Run()
	stop()
	stopAllocator()
	os.Exit(code)
}

// patience bounds the wait for anything: far more than it ever takes.
const patience = 3 * time.Minute

// A tab is a page in the browser. Whatever a test asks of it is to come before
// patience is over; in between nothing is asked again and again: the browser
// notifies the test when the page has changed.
type tab struct {
	t      *testing.T
	ctx    context.Context
	server *httptest.Server

	mu       sync.Mutex // guards the field below
	problems []string   // errors in the console, and dialogs
}

// open serves h and opens its page. At the end of the test the page must not
// have caused an error, a breach of its Content-Security-Policy or a dialog.
func open(t *testing.T, h http.Handler, path string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	tb := &tab{t: t, ctx: ctx, server: httptest.NewServer(h)}
	if err := chromedp.Listen(ctx, tb.hear); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tb.mu.Lock()
		for _, problem := range tb.problems {
			t.Errorf("the browser complains: %s", problem)
		}
		tb.mu.Unlock()
		cancel()
		tb.server.CloseClientConnections() // ends the streams
		tb.server.Close()
	})
	tb.do(chromedp.Navigate(tb.server.URL + path))
	return tb
}

// hear takes note of problems. It must not wait.
func (tb *tab) hear(event any) {
	problem := ""
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		problem = "dialog: " + e.Message
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("%+v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		problem = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprintf("console.%s: %v", e.Type, e.Args)
	}
	if problem != "" {
		tb.mu.Lock()
		tb.problems = append(tb.problems, problem)
		tb.mu.Unlock()
	}
}

// forgive forgets the problems so far, of which there must be one that contains
// the text.
func (tb *tab) forgive(text string) {
	tb.t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if !strings.Contains(strings.Join(tb.problems, "\n"), text) {
		tb.t.Errorf("the browser does not complain of %q, but of %q", text, tb.problems)
	}
	tb.problems = nil
}

func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		tb.t.Fatal(err)
	}
}

// eval returns the value of a JavaScript expression.
func eval[T any](tb *tab, expression string) T {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait waits until an expression is true. The browser checks it when the page changes.
func (tb *tab) wait(expression string) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise((resolve) => {
		const test = () => (`+expression+`);
		if (test()) return resolve(true);
		const observer = new MutationObserver(() => {
			if (!test()) return;
			observer.disconnect();
			resolve(true);
		});
		observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	})`, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.t.Fatalf("waited in vain for %s: %v; the page has\n%s", expression, err,
			eval[string](tb, "document.body.innerText"))
	}
}

// text returns what stands in an element, as it is shown.
func (tb *tab) text(selector string) string {
	tb.t.Helper()
	return eval[string](tb, fmt.Sprintf("document.querySelector(%s).innerText", strconv.Quote(selector)))
}

const namesJS = `[...document.querySelectorAll('.items .name a')].map((a) => a.innerText).join(' ')`

// waitNames waits until the table has these items.
func (tb *tab) waitNames(want string) {
	tb.t.Helper()
	tb.wait(namesJS + " === " + strconv.Quote(want))
}

// waitSaid waits until the page says this about an action.
func (tb *tab) waitSaid(want string) {
	tb.t.Helper()
	tb.wait("document.getElementById('said').innerText === " + strconv.Quote(want))
}

func (tb *tab) click(selector string) {
	tb.t.Helper()
	tb.do(chromedp.Click(chromedp.CSS(selector)))
}
