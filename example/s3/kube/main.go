// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command kube keeps the buckets of an S3 store as the ConfigMaps of a
// Kubernetes namespace say:
//
//	go run .                      # on the cluster that kubectl uses; starts an S3 gateway of its own
//	kubectl apply -f wish.yaml    # wishes for the bucket payroll
//	kubectl describe cm payroll   # tells what is wrong with it, if anything is
//	kubectl delete cm payroll     # and it is removed, if it is empty
//
// It is the controller of example/s3, fed by another source: control.go is all
// that is new.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/example/s3/internal/fed"
)

type options struct {
	fed.Options
	kubeconfig, namespace string
}

func main() { program.Main(start) }

// start reads the flags and runs the program. It returns the exit code.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := options{Options: fed.New()}
	f := flag.NewFlagSet("kube", flag.ContinueOnError)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "the `FILE` that says where the cluster is; without it, as kubectl does, or the cluster it runs in")
	f.StringVar(&o.namespace, "namespace", "", "the `NAME` of the namespace with the wishes; without it, that of kubectl")
	o.Flags(f)
	err := program.Parse(f, "Usage: go run . [flags]\n\n", args, o.Check, stderr)
	return program.Start(err, stderr, func() (int, error) { return 0, run(ctx, o, stdout, stderr) })
}

// run starts what there is not yet, and works until ctx is done.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	store, end, err := o.Open(ctx, stdout, stderr)
	if err != nil {
		return err
	}
	defer end()
	fmt.Fprintf(stdout, "S3 at %s, wishes in the namespace %s; try\n  kubectl apply -n %s -f wish.yaml\n", o.Endpoint, o.namespace, o.namespace)
	return control(ctx, client, store, o, func(reconcile.Result[string]) {})
}

// connect asks the cluster for the wishes once, and says what to do if it does
// not answer as it ought to. It sets the namespace if none was given.
func (o *options) connect(ctx context.Context) (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster: give -kubeconfig, or have kubectl reach one: %w", err)
	}
	if o.namespace == "" {
		if o.namespace, _, err = loader.Namespace(); err != nil {
			return nil, err
		}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := client.CoreV1().ConfigMaps(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1}); err != nil {
		return nil, fmt.Errorf("listing the wishes at %s, which rbac.yaml allows: %w", config.Host, err)
	}
	return client, nil
}
