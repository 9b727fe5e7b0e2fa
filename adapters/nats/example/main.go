// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Example is a controller whose wanted state lives in NATS. It publishes sites:
//
//	bucket "sites"   the primaries: what is wanted, by whoever wants it
//	bucket "routes"  the secondaries: an entry for each host of a site, written
//	                 by the controller and owned by the site
//	bucket "themes"  read only: what a site looks like
//	a folder         the world outside: a page for each site, which NATS knows
//	                 nothing of
//
// Start it several times with the same -nats and -dir: one of the processes
// works, another one takes over when it stops. Without -nats it starts a server
// of its own, with JetStream in a temporary folder, and a first site.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	url := flag.String("nats", "", "URL of a NATS server with JetStream; empty starts one")
	dir := flag.String("dir", "", "folder of the pages; empty makes one")
	period := flag.Duration("period", 10*time.Second, "how often to look at the folder, and at all that NATS has")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, *url, *dir, *period); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, dir string, period time.Duration) error {
	if dir == "" {
		temp, err := os.MkdirTemp("", "sites-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	embedded := url == ""
	if embedded {
		shutdown, own, err := startServer()
		if err != nil {
			return err
		}
		defer shutdown()
		url = own
	}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", url, err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := newController(ctx, js, dir, period)
	if err != nil {
		return err
	}
	if embedded {
		if err := c.seed(ctx); err != nil {
			return err
		}
	}
	c.synced = func(site string) { fmt.Println("in sync:", site) }
	fmt.Printf("NATS is at %s, pages are in %s\n", url, dir)
	return c.Run(ctx)
}

// startServer starts a server in this process.
func startServer() (shutdown func(), url string, err error) {
	dir, err := os.MkdirTemp("", "nats-")
	if err != nil {
		return nil, "", err
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		return nil, "", err
	}
	s.Start()
	shutdown = func() {
		s.Shutdown()
		s.WaitForShutdown()
		os.RemoveAll(dir)
	}
	if !s.ReadyForConnections(time.Minute) {
		shutdown()
		return nil, "", errors.New("the server is not ready in time")
	}
	return shutdown, s.ClientURL(), nil
}

// seed writes a first site.
func (c *controller) seed(ctx context.Context) error {
	value, err := json.Marshal(site{Theme: "plain", Hosts: []string{"www.example.com"}, Text: "Hello."})
	if err != nil {
		return err
	}
	_, errTheme := c.themes.PutString(ctx, "plain", "<body>%s</body>\n")
	_, errSite := c.sites.Put(ctx, "hello", value)
	return errors.Join(errTheme, errSite)
}
