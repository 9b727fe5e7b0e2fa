// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package manager explores controllers of controller-runtime as they are: with a Manager,
// its caches and its queues, over the API server of package kubesim. Its [Start] takes
// what the main of a program sets up:
//
//	kubesim.Explore(t, kubesim.Scenario{
//		Kinds:  kubesim.CRDs(t, "../../config/crd/bases"),
//		Scheme: scheme,
//		Start: manager.Start(ctrl.Options{Scheme: scheme}, func(mgr ctrl.Manager) error {
//			return (&Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr)
//		}),
//		Steps: func(s *kubesim.Environment) { ... },
//	})
package manager

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// Start returns the Start of a [kubesim.Scenario]. For each process it makes a Manager with
// these options and calls setup. It panics if setup returns an error, or if the
// configuration is not one of [kubesim.Server.Config].
//
// The Manager serves no metrics, probes or webhooks. It logs to options.Logger; if that is
// the zero value, it logs its errors alone, to the journal. Two controllers may have the
// same name. The Manager uses [kubesim.Server.Mapper], which makes no requests, instead of
// options.MapperProvider. If options.GracefulShutdownTimeout is nil, the Manager waits a
// second for its controllers when it ends.
func Start(options ctrl.Options, setup func(ctrl.Manager) error) func(*explore.Process, *rest.Config) kubesim.Runner {
	log.SetLogger(options.Logger) // otherwise it complains, after 30 seconds
	yes, second := true, time.Second
	options.Metrics.BindAddress, options.HealthProbeBindAddress, options.PprofBindAddress = "0", "0", "0"
	options.Controller.SkipNameValidation = &yes
	options.GracefulShutdownTimeout = cmp.Or(options.GracefulShutdownTimeout, &second)
	return func(proc *explore.Process, cfg *rest.Config) kubesim.Runner {
		server := kubesim.ServerOf(cfg)
		if server == nil {
			panic("manager: Start needs a configuration of kubesim.Server.Config, whose Transport is as it was")
		}
		own := options
		if own.Logger.GetSink() == nil {
			own.Logger = logr.FromSlogHandler(errorsOnly{proc.Logger().Handler()})
		}
		own.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return server.Mapper(), nil }
		mgr, err := ctrl.NewManager(cfg, own)
		if err == nil {
			err = setup(mgr)
		}
		if err != nil {
			panic("manager: " + err.Error())
		}
		return runner{mgr}
	}
}

// errorsOnly is a handler of errors. It leaves out the identifier of the run, which differs
// each time, and what the names of the controller and of the object say.
type errorsOnly struct{ slog.Handler }

func (h errorsOnly) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (h errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{h.Handler.WithAttrs(slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool {
		return slices.Contains([]string{"reconcileID", "controllerGroup", "controllerKind"}, a.Key) || a.Value.Kind() == slog.KindLogValuer
	}))}
}

func (h errorsOnly) WithGroup(name string) slog.Handler { return errorsOnly{h.Handler.WithGroup(name)} }

type runner struct{ ctrl.Manager }

// Run implements [kubesim.Runner].
func (r runner) Run(ctx context.Context) error {
	// A Manager whose context ends before its caches have synced goes round without a
	// pause until they have, which would hold the clock of the bubble. So that comes
	// first: the server answers lists and watches of a process that is dead.
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	synced := make(started)
	if err := r.Add(synced); err != nil {
		return err
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-own.Done():
			return
		}
		select {
		case <-synced:
		case <-own.Done():
		}
		end()
	}()
	return r.Start(own)
}

// started is a part of a Manager that it starts after its caches.
type started chan struct{}

func (s started) Start(ctx context.Context) error {
	close(s)
	<-ctx.Done()
	return nil
}

func (started) NeedLeaderElection() bool { return false }
