// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package warmpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
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
	"github.com/reconkernel/reconcile/explore"
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
}

// A cloud is how a process reaches the interface.
type cloud struct {
	proc *explore.Process
	w    *world
}

func (c cloud) List(ctx context.Context, _ string) ([]string, error) {
	return explore.Read(ctx, c.proc, "list addresses", func() ([]string, error) {
		return slices.Clone(c.w.ips), nil
	})
}

func (c cloud) Assign(ctx context.Context, _ string, n int) (made []string, err error) {
	err = c.proc.Do(ctx, "assign", func() error {
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
	return c.proc.Do(ctx, "unassign", func() error {
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
	all, err := h.List(h.proc.Context(), "node")
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
	return h.Assign(h.proc.Context(), "node", n)
}

func (h helper) UnassignIPv4Resources(_ string, _ config.ResourceType, ips []string) error {
	return h.Unassign(h.proc.Context(), "node", ips)
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

func theirs(proc *explore.Process, w *world) {
	proc.Go(func(ctx context.Context) error {
		jobs := worker.NewDefaultWorkerPool(config.ResourceNameIPAddress, 1, config.WorkQueueDefaultMaxRetries, logr.Discard(), ctx)
		c := cloud{proc, w}
		p := ip.NewIPv4Provider(logr.Discard(), vpcapi.Wrapper{EC2API: helper{cloud: c}, K8sAPI: kube{w: w}, PodAPI: pods{}}, jobs, config.ResourceConfig{}, conditions{})
		if err := jobs.StartWorkerPool(p.ProcessAsyncJob); err != nil {
			return err
		}
		for p.InitResource(instance{}) != nil && proc.Step() {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				return nil
			}
		}
		proc.OnEvent(func(any) { _ = p.UpdateResourceCapacity(instance{}) })
		<-ctx.Done()
		return nil
	})
}

func scenario(start func(*explore.Process, *world)) explore.Scenario[*world] {
	return explore.Scenario[*world]{
		World: func() *world { return &world{spare: 2} },
		Start: start,
		Steps: func(env *explore.Environment, w *world) {
			for _, spare := range []int{2, 4, 1, 3} {
				w.spare = spare
				env.Event("the configuration is another")
				env.Advance(5 * time.Minute)
			}
		},
		State: func(w *world) string { return fmt.Sprintf("addresses: %d", len(w.ips)) },
		// Both are told of the configuration by an informer.
		Without:  []explore.Fault{explore.Lost},
		Plans:    300,
		Parallel: 1, // they change variables of a package
	}
}

// TestWarmPool finds that the pool counts in memory what its jobs have done: after a job
// that failed it lists once, and keeps what an old list says.
func TestWarmPool(t *testing.T) {
	r, err := explore.Search(t, scenario(theirs))
	if err != nil {
		t.Fatal(err)
	}
	if r.Found == nil || !strings.Contains(fmt.Sprint(r.Found), "+ addresses: 4") {
		t.Fatalf("found %v in %d plans, want an address too many", r.Found, r.Plans)
	}
	t.Log(r.Found.Number, r.Found.Plan)
}
