// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !nightly

package kube_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/supervise"
)

// A sized is a kind whose size is a number, for this program alone.
type sized struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Size              int `json:"size,omitempty"`
}

func (s *sized) DeepCopyObject() runtime.Object { return custom.DeepCopy(s) }

// TestReadyOfAnInformerThatCannotRead has a kind whose objects cannot be read any more:
// the log warns, Ready fails after two minutes, and is good again within some more once
// they can be. A watch that the server ends each minute is no reason.
func TestReadyOfAnInformerThatCannotRead(t *testing.T) {
	for what, test := range map[string]struct{ fault, want string }{
		"an object that does not decode": {"", "cannot unmarshal"},
		"a kind that is gone":            {"404", "could not find the requested resource"},
		"a right that is withdrawn":      {"403", "failed to list"},
		"credentials that have expired":  {"401", "provide credentials"},
		"a proxy that hangs up":          {"EOF", "a request failed 10 times, or was to be sent later"},
		"a proxy that answers nothing":   {"200", "0-length response"},
	} {
		t.Run(what, func(t *testing.T) {
			apitest.Run(t, func(t *testing.T, s *apitest.Server) {
				gvr := s.Define(t, "Namespaced", "blind.example.com", "Sized")
				ns := s.Namespace(t)
				fault := make(chan string, 1)
				fault <- ""
				config := rest.CopyConfig(s.Admin())
				config.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return rounds(func(r *http.Request) (*http.Response, error) {
						now := <-fault
						fault <- now
						if now != "" && strings.Contains(r.URL.Path, "/sizeds") {
							code, err := strconv.Atoi(now)
							if err != nil {
								return nil, io.EOF
							}
							body := "no"
							if code == 200 {
								body = ""
							}
							return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
						}
						ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
						resp, err := next.RoundTrip(r.WithContext(ctx))
						if err != nil {
							cancel()
							return nil, err
						}
						resp.Body = ending{resp.Body, cancel}
						return resp, nil
					})
				})
				things, err := custom.NewClient[sized](config, gvr, "Sized")
				if err != nil {
					t.Fatal(err)
				}
				c := &kube.Controller[*sized]{Name: "sizes", Informer: things.Informer(ns, 0), Reconcile: func(context.Context, *sized) error { return nil }}
				var source *kube.Source[name]
				c.With = func(p *kube.Parts) { source = p.Sources[0] }
				owned := kube.Owns[*sized](c, things.Informer(ns, 0), kube.OwnedBy{APIVersion: "blind.example.com/v1", Kind: "Sized"})
				var log bytes.Buffer
				group := supervise.Group{Logger: slog.New(slog.NewTextHandler(&log, nil))}
				group.Add("informers", c.Informers())
				group.Add("sizes", c)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- group.Run(ctx) }()
				ready := func(when, want string) {
					t.Helper()
					synctest.Wait()
					_, all := c.Ready()
					_, one := source.Ready()
					_, list := source.List(context.Background())
					_, of := owned.Of(&sized{})
					for _, err := range []error{all, one, list, of} {
						if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
							t.Errorf("%s: Ready is %v and of the Source %v, List %v, Of %v, want %q", when, all, one, list, of, want)
							break
						}
					}
				}
				time.Sleep(10*time.Minute + time.Second)
				ready("while all is well", "")
				if test.fault == "" {
					s.KubectlInput(t, `{"apiVersion": "blind.example.com/v1", "kind": "Sized", "metadata": {"name": "bad", "namespace": "`+ns+`"}, "size": "big"}`, "create", "-f", "-")
				} else {
					<-fault
					fault <- test.fault
				}
				time.Sleep(time.Minute)
				ready("after a minute", "")
				time.Sleep(5 * time.Minute)
				ready("after six minutes", test.want)
				if !strings.Contains(log.String(), `level=WARN msg="informer cannot list or watch, retrying"`) {
					t.Errorf("no warning in the log:\n%s", log.String())
				}
				if test.fault == "" {
					s.Kubectl(t, "delete", "sizeds.blind.example.com", "bad", "-n", ns)
				} else {
					<-fault
					fault <- ""
				}
				time.Sleep(3 * time.Minute)
				ready("when it can be read again", "")
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				ready("when the informer has stopped", "has stopped")
			})
		})
	}
}

type rounds func(*http.Request) (*http.Response, error)

func (f rounds) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ending releases the context of a body that is read.
type ending struct {
	io.ReadCloser
	cancel func()
}

func (e ending) Close() error { e.cancel(); return e.ReadCloser.Close() }
