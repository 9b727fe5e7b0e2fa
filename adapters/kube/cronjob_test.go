// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// This is the CronJob controller of the kubebuilder book, as one writes it here. A
// schedule is a duration: what reads cron's own is another module.

type CronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              CronJobSpec   `json:"spec"`
	Status            CronJobStatus `json:"status,omitzero"`
}

type CronJobSpec struct {
	Schedule                   string                  `json:"schedule"`
	StartingDeadlineSeconds    *int64                  `json:"startingDeadlineSeconds,omitempty"`
	ConcurrencyPolicy          string                  `json:"concurrencyPolicy,omitempty"` // Allow, Forbid, Replace
	Suspend                    bool                    `json:"suspend,omitempty"`
	JobTemplate                batchv1.JobTemplateSpec `json:"jobTemplate"`
	SuccessfulJobsHistoryLimit *int                    `json:"successfulJobsHistoryLimit,omitempty"`
	FailedJobsHistoryLimit     *int                    `json:"failedJobsHistoryLimit,omitempty"`
}

type CronJobStatus struct {
	Active           []corev1.ObjectReference `json:"active,omitempty"`
	LastScheduleTime *metav1.Time             `json:"lastScheduleTime,omitempty"`
	Conditions       []metav1.Condition       `json:"conditions,omitempty"`
}

func (c *CronJob) DeepCopyObject() runtime.Object { return custom.DeepCopy(c) }

const scheduledAt = "batch.example.com/scheduled-at" // annotation of a Job

// A CronJobReconciler has what its Reconcile needs.
type CronJobReconciler struct {
	client   kubernetes.Interface
	cronJobs *custom.Client[*CronJob]
	jobs     *kube.Owned[*batchv1.Job]
	now      func() time.Time
	told     func(reconcile.Result[cache.ObjectName]) // for the test
}

func NewCronJobReconciler(config *rest.Config) (*CronJobReconciler, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	gvr := schema.GroupVersionResource{Group: "batch.example.com", Version: "v1", Resource: "cronjobs"}
	cronJobs, err := custom.NewClient[CronJob](config, gvr, "CronJob")
	return &CronJobReconciler{client: client, cronJobs: cronJobs, now: time.Now}, err
}

// Group is what a process runs: the informers, and the rest while it leads.
func (r *CronJobReconciler) Group(namespace string, leader elect.Config) *supervise.Group {
	c := &kube.Controller[*CronJob]{Name: "cron jobs", Informer: r.cronJobs.Informer(namespace, 0), Reconcile: r.Reconcile, Workers: 4}
	jobs := informers.NewSharedInformerFactoryWithOptions(r.client, 0, informers.WithNamespace(namespace)).Batch().V1().Jobs()
	r.jobs = kube.Owns[*batchv1.Job](c, jobs.Informer(), kube.OwnedBy{APIVersion: "batch.example.com/v1", Kind: "CronJob"})
	c.With = func(p *kube.Parts) { p.Reconciler.OnResult = r.told }
	var group supervise.Group
	group.Add("informers", c.Informers())
	group.Add("leader", elect.Elect(leader, c))
	return &group
}

// Reconcile starts the Job that is due, removes old ones, and says how it went.
func (r *CronJobReconciler) Reconcile(ctx context.Context, cronJob *CronJob) error {
	jobs, err := r.jobs.Of(cronJob)
	if err != nil {
		return err
	}
	status := CronJobStatus{LastScheduleTime: cronJob.Status.LastScheduleTime}
	finished := make(map[batchv1.JobConditionType][]*batchv1.Job)
	for _, job := range jobs {
		if how := finishedAs(job); how != "" {
			finished[how] = append(finished[how], job)
		} else {
			status.Active = append(status.Active, corev1.ObjectReference{
				APIVersion: "batch/v1", Kind: "Job", Namespace: job.Namespace, Name: job.Name, UID: job.UID,
			})
		}
		if at, err := time.Parse(time.RFC3339, job.Annotations[scheduledAt]); err == nil && (status.LastScheduleTime == nil || at.After(status.LastScheduleTime.Time)) {
			status.LastScheduleTime = &metav1.Time{Time: at}
		}
	}
	slices.SortFunc(status.Active, func(a, b corev1.ObjectReference) int { return cmp.Compare(a.Name, b.Name) })

	verdict := errors.Join(
		r.tidy(ctx, finished[batchv1.JobComplete], cronJob.Spec.SuccessfulJobsHistoryLimit),
		r.tidy(ctx, finished[batchv1.JobFailed], cronJob.Spec.FailedJobsHistoryLimit),
	)
	if verdict == nil {
		verdict = r.start(ctx, cronJob, status)
	}
	return conditions.Report(ctx, r.cronJobs.In(cronJob.Namespace), cronJob, verdict, func(c *CronJob, ready metav1.Condition) {
		c.Status.Active, c.Status.LastScheduleTime = status.Active, status.LastScheduleTime
		meta.SetStatusCondition(&c.Status.Conditions, ready)
	})
}

// start starts the Job that is due, if the others let it, and asks to be called
// again when the next one is.
func (r *CronJobReconciler) start(ctx context.Context, cronJob *CronJob, status CronJobStatus) error {
	if cronJob.Spec.Suspend {
		return nil
	}
	due, next, err := starts(cronJob, status.LastScheduleTime, r.now())
	if err != nil {
		return reconcile.Terminal(err) // until the spec changes
	}
	later := reconcile.RecheckWithin(next.Sub(r.now()))
	if due.IsZero() || cronJob.Spec.ConcurrencyPolicy == "Forbid" && len(status.Active) > 0 {
		return later
	}
	jobs := r.client.BatchV1().Jobs(cronJob.Namespace)
	if cronJob.Spec.ConcurrencyPolicy == "Replace" {
		for _, job := range status.Active {
			if err := jobs.Delete(ctx, job.Name, deleteBackground); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   cronJob.Namespace,
			Name:        fmt.Sprintf("%s-%d", cronJob.Name, due.Unix()), // one for each start
			Labels:      cronJob.Spec.JobTemplate.Labels,
			Annotations: map[string]string{scheduledAt: due.Format(time.RFC3339)},
		},
		Spec: cronJob.Spec.JobTemplate.Spec,
	}
	maps.Copy(job.Annotations, cronJob.Spec.JobTemplate.Annotations)
	if _, err := r.jobs.Create(ctx, jobs, cronJob, job); err != nil {
		return err
	}
	return later
}

var deleteBackground = metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}

// tidy removes the oldest Jobs beyond a limit.
func (r *CronJobReconciler) tidy(ctx context.Context, jobs []*batchv1.Job, limit *int) error {
	if limit == nil {
		return nil
	}
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int { return a.Status.StartTime.Time.Compare(b.Status.StartTime.Time) })
	for len(jobs) > *limit {
		err := r.client.BatchV1().Jobs(jobs[0].Namespace).Delete(ctx, jobs[0].Name, deleteBackground)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		jobs = jobs[1:]
	}
	return nil
}

// starts returns the last start that is due and was missed, if any, and the next.
func starts(cronJob *CronJob, last *metav1.Time, now time.Time) (due, next time.Time, err error) {
	every, err := time.ParseDuration(cronJob.Spec.Schedule)
	if err != nil || every <= 0 {
		return due, next, fmt.Errorf("spec.schedule is %q, want a duration such as 1h", cronJob.Spec.Schedule)
	}
	since := cronJob.CreationTimestamp.Time
	if last != nil {
		since = last.Time
	}
	missed := now.Sub(since) / every
	next = since.Add((missed + 1) * every)
	switch deadline := cronJob.Spec.StartingDeadlineSeconds; {
	case deadline == nil && missed > 100:
		return due, next, fmt.Errorf("%d starts were missed: set spec.startingDeadlineSeconds, or look at the clocks", missed)
	case missed > 0 && (deadline == nil || now.Sub(next.Add(-every)) <= time.Duration(*deadline)*time.Second):
		due = next.Add(-every)
	}
	return due, next, nil
}

// finishedAs returns Complete or Failed, or nothing for a Job that goes on.
func finishedAs(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// TestCronJob starts Jobs as their times come, with two processes of which one
// leads: not while another goes on, in its place, late, not at all; removes old
// ones, and says so in the status.
func TestCronJob(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		s.Define(t, "Namespaced", "batch.example.com", "CronJob")
		var mu sync.Mutex // guards what follows
		begin, passed, ran := time.Now(), time.Duration(0), make(map[string]int)
		process := func(name string) (stop func()) {
			r, err := NewCronJobReconciler(s.Admin())
			if err != nil {
				t.Fatal(err)
			}
			r.now = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return begin.Add(passed)
			}
			r.told = func(r reconcile.Result[cache.ObjectName]) {
				if r.Outcome == reconcile.OutcomeRetrying {
					t.Errorf("%s: %v", r.Item, r.Err)
				}
				mu.Lock()
				defer mu.Unlock()
				ran[name]++
			}
			return kubetest.Run(t, r.Group(ns, elect.Config{
				Client: r.client.CoordinationV1(), Namespace: ns, Name: "cronjobs", Identity: name,
				Duration: time.Minute, Period: 2 * time.Second, // no term is to be lost on a slow machine
			}))
		}
		stopA := process("a")
		kubetest.Eventually(t, func() error {
			if lease := s.Kubectl(t, "get", "lease", "-n", ns, "-o", "name"); lease == "" {
				return errors.New("nobody leads")
			}
			return nil
		})
		process("b")

		client := typed(t, s.Admin())
		cronJobs, err := custom.NewClient[CronJob](s.Admin(), schema.GroupVersionResource{Group: "batch.example.com", Version: "v1", Resource: "cronjobs"}, "CronJob")
		if err != nil {
			t.Fatal(err)
		}
		template := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "busybox"}},
		}}}}
		made, err := cronJobs.In(ns).Create(t.Context(), &CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "hourly"},
			Spec:       CronJobSpec{Schedule: "1h", ConcurrencyPolicy: "Forbid", SuccessfulJobsHistoryLimit: new(0), JobTemplate: template},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		begin = made.CreationTimestamp.Time
		mu.Unlock()
		// name is that of the Job of a start.
		name := func(hour int) string {
			return fmt.Sprintf("hourly-%d", begin.Add(time.Duration(hour)*time.Hour).Unix())
		}
		// after sets the clock, changes the spec, and waits until a run has seen that:
		// for the Jobs that go on then, and the reason of Ready.
		after := func(hours float64, spec string, active []string, reason string) {
			t.Helper()
			mu.Lock()
			passed = time.Duration(hours * float64(time.Hour))
			mu.Unlock()
			changed, err := cronJobs.In(ns).Patch(t.Context(), "hourly", types.MergePatchType, []byte(`{"spec": `+spec+`}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			kubetest.Eventually(t, func() error {
				c, err := cronJobs.In(ns).Get(t.Context(), "hourly", metav1.GetOptions{})
				if err != nil {
					return err
				}
				var got []string
				for _, ref := range c.Status.Active {
					got = append(got, ref.Name)
				}
				ready := meta.FindStatusCondition(c.Status.Conditions, "Ready")
				if ready == nil || ready.ObservedGeneration != changed.Generation || ready.Reason != reason || !slices.Equal(got, active) {
					return fmt.Errorf("after %v hours: active are %v, Ready is %+v, want %v and %s", hours, got, ready, active, reason)
				}
				return nil
			})
			jobs, err := client.BatchV1().Jobs(ns).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range jobs.Items {
				if !metav1.IsControlledBy(&job, made) || finishedAs(&job) == "" && !slices.Contains(active, job.Name) {
					t.Errorf("after %v hours there is the job %s, of %v", hours, job.Name, job.OwnerReferences)
				}
			}
		}
		after(0.5, `{"suspend": false}`, nil, "Reconciled")
		after(1.5, `{"startingDeadlineSeconds": 7200}`, []string{name(1)}, "Reconciled")
		after(2.5, `{"startingDeadlineSeconds": 7201}`, []string{name(1)}, "Reconciled") // forbidden
		finish(t, client, ns, name(1), batchv1.JobComplete)
		after(2.6, `{"startingDeadlineSeconds": 7202}`, []string{name(2)}, "Reconciled")
		finish(t, client, ns, name(2), batchv1.JobComplete)
		kubetest.Eventually(t, func() error {
			jobs, err := client.BatchV1().Jobs(ns).List(t.Context(), metav1.ListOptions{})
			if err == nil && len(jobs.Items) > 0 {
				err = fmt.Errorf("the job %s is there, want the finished ones removed", jobs.Items[0].Name)
			}
			return err
		})
		after(2.7, `{"startingDeadlineSeconds": 7203}`, nil, "Reconciled") // not the same again
		mu.Lock()
		if ran["a"] == 0 || ran["b"] != 0 {
			t.Errorf("runs: %v, want those of a alone", ran)
		}
		mu.Unlock()

		stopA()
		after(3.5, `{"concurrencyPolicy": "Replace"}`, []string{name(3)}, "Reconciled")
		after(4.5, `{"startingDeadlineSeconds": 7204}`, []string{name(4)}, "Reconciled") // in its place
		// Before the clock goes on: a run of that moment would start one in time by the old spec.
		after(4.6, `{"startingDeadlineSeconds": 60}`, []string{name(4)}, "Reconciled")
		after(6.5, `{"startingDeadlineSeconds": 61}`, []string{name(4)}, "Reconciled") // too late
		after(7.5, `{"startingDeadlineSeconds": null, "suspend": true}`, []string{name(4)}, "Reconciled")
		after(7.6, `{"schedule": "* * * * *", "suspend": false}`, []string{name(4)}, "TerminalError")
		after(500, `{"schedule": "1h"}`, []string{name(4)}, "TerminalError") // too many
		finish(t, client, ns, name(4), batchv1.JobFailed)
		// The end is seen before the next start, which would otherwise replace the job.
		after(500, `{"startingDeadlineSeconds": null}`, nil, "TerminalError")
		after(500.1, `{"startingDeadlineSeconds": 3600, "failedJobsHistoryLimit": 1}`, []string{name(500)}, "Reconciled")
		if _, err := client.BatchV1().Jobs(ns).Get(t.Context(), name(4), metav1.GetOptions{}); err != nil {
			t.Errorf("the failed job, of which one is kept: %v", err)
		}
	})
}

// finish says of a Job that it has ended, as the Job controller does.
func finish(t *testing.T, client kubernetes.Interface, ns, name string, how batchv1.JobConditionType) {
	t.Helper()
	reason := batchv1.JobSuccessCriteriaMet
	if how == batchv1.JobFailed {
		reason = batchv1.JobFailureTarget
	}
	now := metav1.Now()
	status := batchv1.JobStatus{StartTime: &now, Conditions: []batchv1.JobCondition{
		{Type: reason, Status: corev1.ConditionTrue}, {Type: how, Status: corev1.ConditionTrue},
	}}
	if how == batchv1.JobComplete {
		status.CompletionTime = &now
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		_, err = client.BatchV1().Jobs(ns).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		t.Fatal(err)
	}
}
