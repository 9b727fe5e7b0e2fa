// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package provisioner explores the controller of sig-storage-lib-external-provisioner, on
// which those of many storage systems stand.
package provisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// A world is an API server, and the volumes of a storage system.
type world struct {
	*kubesim.Server
	volumes map[string]bool
}

// A storage is how a process reaches the volumes. It makes them idempotently by the name
// that it is given, as the library asks for.
type storage struct {
	proc *explore.Process
	w    *world
}

func (s storage) Provision(ctx context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	err := s.proc.Do(ctx, "create volume "+o.PVName, func() error { s.w.volumes[o.PVName] = true; return nil })
	if err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource:        v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/" + o.PVName}},
		},
	}, controller.ProvisioningFinished, nil
}

func (s storage) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	return s.proc.Do(ctx, "delete volume "+pv.Name, func() error { delete(s.w.volumes, pv.Name); return nil })
}

func start(proc *explore.Process, w *world) {
	proc.Go(func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(w.Config(proc))
		if err != nil {
			return err
		}
		c := controller.NewProvisionController(ctx, client, "example.org/disks", storage{proc, w},
			controller.LeaderElection(false), controller.MetricsPort(0), controller.AddFinalizer(true))
		c.Run(ctx)
		return nil
	})
}

// release is what the controller of Kubernetes does with volumes whose claim is gone.
func release(proc *explore.Process, w *world) {
	proc.Go(func(ctx context.Context) error {
		for ; ctx.Err() == nil; time.Sleep(time.Minute) {
			if _, there := kubesim.Get(w.Server, claim()); there {
				continue
			}
			for _, pv := range kubesim.List(w.Server, &v1.PersistentVolume{}) {
				kubesim.Update(w.Server, pv, func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeReleased })
			}
		}
		return nil
	})
}

func claim() *v1.PersistentVolumeClaim {
	class := "fast"
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Annotations: map[string]string{
			"volume.kubernetes.io/storage-provisioner": "example.org/disks",
		}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func TestProvisioner(t *testing.T) {
	r, err := explore.Search(t, explore.Scenario[*world]{
		World: func() *world {
			w := &world{kubesim.NewServer(), map[string]bool{}}
			policy := v1.PersistentVolumeReclaimDelete
			w.Create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.org/disks", ReclaimPolicy: &policy})
			return w
		},
		Start:  start,
		Others: []func(*explore.Process, *world){release},
		Steps: func(env *explore.Environment, w *world) {
			w.Create(claim())
			env.Advance(30 * time.Minute)
			w.Delete(claim())
			env.Advance(30 * time.Minute)
		},
		State: func(w *world) string {
			var b strings.Builder
			fmt.Fprintln(&b, "volumes:", slices.Sorted(maps.Keys(w.volumes)))
			for _, pv := range kubesim.List(w.Server, &v1.PersistentVolume{}) {
				fmt.Fprintf(&b, "pv %s %v\n", pv.GetName(), pv.GetFinalizers())
			}
			return b.String()
		},
		Parallel: 1, // NewProvisionController changes the scheme that all clients have
		// Plan 636 of those that are drawn otherwise.
		Replay: []string{"call create volume pvc-00000000-0000-4000-8000-000000000006 #1: outage", "call create volume pvc-00000000-0000-4000-8000-000000000006 #12: dies after"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Found == nil || !strings.Contains(r.Found.Failure, "+ volumes: [pvc-") {
		t.Errorf("it finds %v, want a volume that is left: has it been fixed?", r.Found)
	}
	t.Log(r.Found, r)
}

func TestMain(m *testing.M) {
	kubesim.Silence()
	m.Run()
}
