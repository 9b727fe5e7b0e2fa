// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package browser

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestBehindNginx has nginx between the browser and the page, with its defaults: it
// buffers, speaks HTTP/1.0 to the program, and changes the Host. It serves the page
// below a prefix, and compresses all that it passes on.
func TestBehindNginx(t *testing.T) {
	w := newWorld(t)
	w.run(t, "a")
	server := httptest.NewServer(w.page)
	url := startNginx(t, `location /ops/status/ { proxy_pass `+server.URL+`/; } gzip on; gzip_types *; gzip_proxied any;`)
	t.Cleanup(func() { // after the tab, which would complain
		server.CloseClientConnections()
		server.Close()
	})
	tb := newTab(t, http.NotFoundHandler())
	tb.load(url + "/ops/status/")
	tb.waitNames("a")
	w.run(t, "b")
	tb.waitNames("a b")

	w.queue.EnqueueAfter("c", 3.6e12)
	tb.wait(`document.querySelector('a[href*="item=c"]') !== null`)
	tb.load(url + "/ops/status/item?item=c")
	tb.click("#item button[value=reconcile]")
	if got := w.ran(t); got != "c" {
		t.Errorf("%s ran, want c", got)
	}
	tb.wait(`document.querySelectorAll('#runs tbody tr').length === 1`)
}

// startNginx runs nginx until the test ends, with these directives of a server. It gets
// the socket that it listens on, so that no port is free in between.
func startNginx(t *testing.T, directives string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`
daemon off; worker_processes 1; user root; pid %[1]s/pid; error_log stderr warn;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen %[2]s; %[3]s }
}`, dir, l.Addr(), directives)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var says bytes.Buffer
	nginx := exec.Command("nginx", "-c", config, "-p", dir)
	nginx.Stderr = &says
	nginx.ExtraFiles = []*os.File{socket}
	nginx.Env = append(os.Environ(), "NGINX=3;") // inherited sockets
	if err := nginx.Start(); err != nil {
		t.Fatalf("nginx was not started: %v", err)
	}
	t.Cleanup(func() {
		_ = nginx.Process.Signal(syscall.SIGTERM) // ends its worker too
		_ = nginx.Wait()
		if strings.Contains(says.String(), "[emerg]") || t.Failed() {
			t.Errorf("nginx says:\n%s", says.String())
		}
	})
	return "http://" + l.Addr().String()
}
