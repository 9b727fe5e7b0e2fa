// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package warmpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	vpcapi "github.com/aws/amazon-vpc-resource-controller-k8s/pkg/api"
	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/aws/ec2"
	ec2api "github.com/aws/amazon-vpc-resource-controller-k8s/pkg/aws/ec2/api"
	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/condition"
	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/config"
	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/k8s"
	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/k8s/pod"
	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/provider/ip"
	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/worker"
	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/go-logr/logr"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/found/figures"
	v1 "k8s.io/api/core/v1"
)

// The interface of a t3.medium has five secondary addresses at most.
const (
	capacity = 5
	machine  = "t3.medium"
)

// A world is the network interface of a node, and how many addresses it is to have to
// spare.
type world struct {
	ips   []string
	spare int
	calls map[string]int
}

// A cloud is how a process reaches the interface.
type cloud struct {
	k *explore.Kit
	w *world
}

func (c cloud) List(ctx context.Context, _ string) ([]string, error) {
	return explore.Read(ctx, c.k, "list addresses", func() ([]string, error) {
		c.w.calls["list"]++
		return slices.Clone(c.w.ips), nil
	})
}

func (c cloud) Assign(ctx context.Context, _ string, n int) (made []string, err error) {
	err = c.k.Do(ctx, "assign", func() error {
		c.w.calls["assign"]++
		if len(c.w.ips)+n > capacity {
			return errors.New("PrivateIpAddressLimitExceeded")
		}
		for i := 1; len(made) < n; i++ {
			if one := "10.0.0." + strconv.Itoa(i); !slices.Contains(c.w.ips, one) {
				made, c.w.ips = append(made, one), append(c.w.ips, one)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (c cloud) Unassign(ctx context.Context, _ string, ips []string) error {
	return c.k.Do(ctx, "unassign", func() error {
		c.w.calls["unassign"]++
		for _, one := range ips {
			if !slices.Contains(c.w.ips, one) {
				return errors.New("InvalidParameterValue: " + one)
			}
		}
		c.w.ips = slices.DeleteFunc(c.w.ips, func(one string) bool { return slices.Contains(ips, one) })
		return nil
	})
}

// What follows is what their provider asks of AWS and of Kubernetes.

type helper struct {
	ec2api.EC2APIHelper // nil: only what follows is asked for
	cloud
}

func (h helper) GetInstanceNetworkInterface(*string) ([]ec2types.InstanceNetworkInterface, error) {
	all, err := h.List(h.k.Context(), "node")
	if err != nil {
		return nil, err
	}
	is := ec2types.InstanceNetworkInterface{
		NetworkInterfaceId: aws.String("eni-1"),
		PrivateIpAddresses: []ec2types.InstancePrivateIpAddress{{Primary: aws.Bool(true), PrivateIpAddress: aws.String("10.0.0.100")}},
	}
	for _, one := range all {
		is.PrivateIpAddresses = append(is.PrivateIpAddresses, ec2types.InstancePrivateIpAddress{Primary: aws.Bool(false), PrivateIpAddress: &one})
	}
	return []ec2types.InstanceNetworkInterface{is}, nil
}

func (h helper) AssignIPv4ResourcesAndWaitTillReady(_ string, _ config.ResourceType, n int) ([]string, error) {
	return h.Assign(h.k.Context(), "node", n)
}

func (h helper) UnassignIPv4Resources(_ string, _ config.ResourceType, ips []string) error {
	return h.Unassign(h.k.Context(), "node", ips)
}

type instance struct{ ec2.EC2Instance }

func (instance) Name() string                      { return "node" }
func (instance) InstanceID() string                { return "i-1" }
func (instance) Type() string                      { return machine }
func (instance) Os() string                        { return config.OSWindows }
func (instance) SubnetMask() string                { return "24" }
func (instance) PrimaryNetworkInterfaceID() string { return "eni-1" }

type kube struct {
	k8s.K8sWrapper
	w *world
}

func (c kube) GetConfigMap(string, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{config.WarmIPTarget: strconv.Itoa(c.w.spare), config.MinimumIPTarget: "1"}}, nil
}

func (kube) AdvertiseCapacityIfNotSet(string, string, int) error { return nil }

type pods struct{ pod.PodClientAPIWrapper }

func (pods) GetRunningPodsOnNode(string) ([]v1.Pod, error) { return nil, nil }

type conditions struct{ condition.Conditions }

func (conditions) IsWindowsPrefixDelegationEnabled() bool { return false }

func theirs(k *explore.Kit, w *world) {
	k.Go(func(ctx context.Context) error {
		jobs := worker.NewDefaultWorkerPool(config.ResourceNameIPAddress, 1, config.WorkQueueDefaultMaxRetries, logr.Discard(), ctx)
		c := cloud{k, w}
		p := ip.NewIPv4Provider(logr.Discard(), vpcapi.Wrapper{EC2API: helper{cloud: c}, K8sAPI: kube{w: w}, PodAPI: pods{}}, jobs, config.ResourceConfig{}, conditions{})
		if err := jobs.StartWorkerPool(p.ProcessAsyncJob); err != nil {
			return err
		}
		for p.InitResource(instance{}) != nil && k.Step() {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				return nil
			}
		}
		k.OnEvent(func(any) { _ = p.UpdateResourceCapacity(instance{}) })
		<-ctx.Done()
		return nil
	})
}

func ours(k *explore.Kit, w *world) {
	p := &Pool{
		Cloud: cloud{k, w}, Queue: reconcile.NewQueue[string](), Capacity: capacity, Cool: 30 * time.Second,
		Target: func() (spare, least int) { return w.spare, 1 },
	}
	p.Add("node", nil)
	k.OnEvent(func(any) { p.Queue.Enqueue("node") })
	k.Go((&reconcile.Reconciler[string]{Queue: p.Queue, Reconcile: p.Reconcile, Timeout: time.Minute, Logger: k.Logger()}).Run)
}

func scenario(start func(*explore.Kit, *world)) explore.Scenario[*world] {
	return explore.Scenario[*world]{
		World: func() *world { return &world{spare: 2, calls: map[string]int{}} },
		Start: start,
		Play: func(stage *explore.Stage, w *world) {
			for _, spare := range []int{2, 4, 1, 3} {
				w.spare = spare
				stage.Event("the configuration is another")
				stage.Advance(5 * time.Minute)
			}
		},
		State: func(w *world) string { return fmt.Sprintf("addresses: %d", len(w.ips)) },
		// Both are told of the configuration by an informer.
		Without:  []explore.Fault{explore.Lost},
		Plans:    300,
		Parallel: 1, // they change variables of a package
	}
}

func TestWarmPool(t *testing.T) {
	for _, test := range []struct {
		name  string
		start func(*explore.Kit, *world)
		lines string
		found string // "" if nothing is
	}{
		{"theirs", theirs, figures.Lines(t, "github.com/aws/amazon-vpc-resource-controller-k8s",
			"pkg/worker/worker.go", "pkg/worker/jobs.go", "pkg/pool/pool.go", "pkg/provider/ip/provider.go", "pkg/provider/ip/eni/eni.go"), "+ addresses: 4"},
		{"ours", ours, figures.Lines(t, "", "warmpool.go"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			figures.Row(t, test.name+", a pool of addresses", test.lines, figures.Found(t, scenario(test.start), test.found), day(t, test.start))
		})
	}
}

// day says how often the cloud is called in a day, in which each hour there is to be
// another number of addresses.
func day(t *testing.T, start func(*explore.Kit, *world)) string {
	var calls map[string]int
	s := scenario(start)
	s.Replay, s.Within = []string{}, time.Minute
	s.Play = func(stage *explore.Stage, w *world) {
		for i := range 24 {
			stage.Advance(time.Hour)
			w.spare = 1 + i%3
			stage.Event("the configuration is another")
		}
		stage.Advance(time.Second)
		calls = maps.Clone(w.calls)
	}
	if _, err := explore.Search(t, s); err != nil {
		t.Fatal(err)
	}
	return figures.Calls(calls)
}

// What a pod gives back is another's only when it has cooled down.
func TestTakeAndGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory{}
		p := &Pool{Cloud: c, Queue: reconcile.NewQueue[string](), Capacity: 2, Cool: 30 * time.Second, Target: func() (int, int) { return 1, 1 }}
		p.Add("node", map[string]string{"old": "ip-0"})
		c["ip-0"] = true
		r := &reconcile.Reconciler[string]{Queue: p.Queue, Reconcile: p.Reconcile}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = r.Run(ctx) }()
		synctest.Wait()
		take := func(pod, want string, wantErr error) {
			t.Helper()
			if got, err := p.Take("node", pod); got != want || err != wantErr {
				t.Errorf("Take(%s) = %q, %v, want %q, %v", pod, got, err, want, wantErr)
			}
			synctest.Wait()
		}
		take("old", "ip-0", nil)
		take("a", "ip-1", nil)
		take("b", "", ErrFull)
		p.Give("node", "a")
		take("b", "", ErrEmpty)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		take("b", "ip-1", nil)
		p.Remove("node")
		take("c", "", ErrEmpty)
		stop()
		synctest.Wait()
	})
}

// memory is a cloud without faults, for one goroutine.
type memory map[string]bool

func (m memory) List(context.Context, string) ([]string, error) {
	return slices.Sorted(maps.Keys(m)), nil
}

func (m memory) Assign(_ context.Context, _ string, n int) (made []string, _ error) {
	for range n {
		one := fmt.Sprint("ip-", len(m))
		m[one], made = true, append(made, one)
	}
	return made, nil
}

func (m memory) Unassign(_ context.Context, _ string, ips []string) error {
	for _, one := range ips {
		delete(m, one)
	}
	return nil
}
