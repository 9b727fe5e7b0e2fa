// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// A deriver names objects by the id of another one, and by a name that is generated. Each
// process makes one worker, a Secret with a generated name, in place of those that it finds.
type deriver struct{ client kubernetes.Interface }

// Run implements [kubesim.Runner].
func (d deriver) Run(ctx context.Context) error {
	for worker := ""; ; {
		_ = d.round(ctx, &worker) // and all over again
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
		}
	}
}

func (d deriver) round(ctx context.Context, worker *string) error {
	secrets, maps := d.client.CoreV1().Secrets("default"), d.client.CoreV1().ConfigMaps("default")
	all, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	have, err := secrets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	current := *worker
	for _, s := range have.Items {
		if current == "" || s.Name != current {
			if err := secrets.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	if current == "" {
		s, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "w-"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		current = s.Name
		*worker = current
	}
	for _, o := range all.Items {
		if strings.HasPrefix(o.Name, "of-") {
			if !strings.HasSuffix(o.Name, current) {
				if err := maps.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			continue
		}
		of := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("of-%s-by-%s", o.UID, current)},
			Data: map[string]string{
				current: "http://" + current + ".default/",
				"json":  fmt.Sprintf(`{"uid":%q,"since":%q}`, o.UID, o.CreationTimestamp.UTC().Add(time.Since(o.CreationTimestamp.Time)).Format(time.RFC3339)),
			},
		}
		if _, err := maps.Create(ctx, of, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// A State, and the names of a plan, do not depend on ids and generated names, also where
// these are a part of another name, a key or a text.
func TestDerivedNames(t *testing.T) {
	r, err := kubesim.Search(t, kubesim.Scenario{
		Start: func(_ *explore.Process, cfg *rest.Config) kubesim.Runner {
			return deriver{kubernetes.NewForConfigOrDie(cfg)}
		},
		Steps: func(s *kubesim.Environment) {
			for _, name := range []string{"a", "b"} {
				s.Create(owned("default", name))
				s.Advance(time.Minute)
			}
		},
		Within: 2 * time.Minute,
		Plans:  100,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Found != nil || len(r.NeverCame) > 2 { // it has no watch to cut, and nothing that another client writes
		t.Errorf("exploring finds %v; these never came: %q", r.Found, r.NeverCame)
	}
	want := `configmaps default/of-*-by-w-*
  data.json: {"uid":"(an id)","since":"(a time)"}
  data.w-*: http://w-*.default/
`
	if strings.Count(r.State, want) != 2 {
		t.Errorf("the state is\n%s\nwant twice\n%s", r.State, want)
	}
}
