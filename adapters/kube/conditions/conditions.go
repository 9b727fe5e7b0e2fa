// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package conditions writes the status of objects, conditions such as Ready
// included, and only when it changes: a reconcile function that reports how it
// went does not wake itself for ever.
package conditions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/absent"
	"github.com/reconkernel/reconcile/adapters/kube/internal/text"
)

// attempts is how often WriteStatus tries again what ended in a conflict.
const attempts = 5

// WriteStatus has change change the status of a copy of obj, conditions and all,
// and writes what is different then:
//
//	bucket, err = conditions.WriteStatus(ctx, client, bucket, func(b *Bucket) {
//		b.Status.URL = url
//		meta.SetStatusCondition(&b.Status.Conditions, ready)
//	})
//
// It returns the object as it is then, and nil at once, without a request, if
// nothing is different. obj itself is not changed. Fields of the status that type O
// does not have are kept.
//
// The status is written together with the resource version that it was read in.
// After a conflict change is called again with what the server has, up to five
// times. So it sets what the run found, and the generation that the run saw;
// it does not count up. An object that is gone, or replaced by another of its
// name, is a NotFound error. A kind that has no subresource status is a
// [reconcile.Terminal] error. A change of anything but the status is a
// [reconcile.Terminal] error, and nothing is written.
func WriteStatus[O kube.Object](ctx context.Context, client kube.Client[O], obj O, change func(obj O)) (O, error) {
	name := obj.GetName()
	for attempt := 1; ; attempt++ {
		changed := obj.DeepCopyObject().(O)
		change(changed)
		patch, err := statusPatch(obj, changed)
		if err != nil || patch == nil {
			return obj, err
		}
		patched, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil {
			return patched, nil
		}
		missing := apierrors.IsNotFound(err) // the object, or its subresource
		if !missing && (!apierrors.IsConflict(err) || attempt == attempts) {
			return obj, fmt.Errorf("write the status of %s: %w", name, absent.Explain(err))
		}
		fresh, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return obj, fmt.Errorf("read the status of %s: %w", name, absent.Explain(err))
		}
		if fresh.GetUID() != obj.GetUID() {
			return obj, fmt.Errorf("write the status of %s: %w", name,
				apierrors.NewNotFound(schema.GroupResource{}, name))
		}
		if missing {
			return obj, reconcile.Terminal(fmt.Errorf("write the status of %s: its kind has no subresource status; its CRD needs subresources: {status: {}}", name))
		}
		obj = fresh
	}
}

// statusPatch returns a merge patch of the status, or nil if it is the same.
func statusPatch(old, changed metav1.Object) ([]byte, error) {
	before, err := fields(old)
	if err != nil {
		return nil, err
	}
	after, err := fields(changed)
	if err != nil {
		return nil, err
	}
	// Of one that has none, an empty status: that of the server may have more.
	patch, err := jsonpatch.CreateMergePatch([]byte(cmp.Or(before["status"], "{}")), []byte(cmp.Or(after["status"], "{}")))
	if err != nil {
		return nil, err
	}
	delete(before, "status")
	delete(after, "status")
	if !maps.Equal(before, after) {
		return nil, reconcile.Terminal(errors.New("conditions: WriteStatus writes the status alone, and the function changed more"))
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": old.GetResourceVersion()},
		"status":   json.RawMessage(patch),
	})
}

// fields returns the fields of an object, each as JSON.
func fields(obj any) (map[string]string, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	texts := make(map[string]string, len(raw))
	for name, text := range raw {
		texts[name] = string(text)
	}
	return texts, nil
}

// Report ends a run that found err: change is given the condition Ready of it, as
// [Ready] says, and sets that in the status of a copy of obj, with whatever else is
// to be there. [WriteStatus] writes it if it differs. Report returns err; an error of
// the writing comes with it, or in place of a plan, and is retried after a
// [reconcile.Terminal] one too. An object that is gone needs no status.
//
// A run that was cut short, so that ctx is done, writes nothing. If err is nil or a
// plan all the same, the cause of ctx is returned in its place: another run has to
// write what is so.
func Report[O kube.Object](ctx context.Context, client kube.Client[O], obj O, err error, change func(obj O, ready metav1.Condition)) error {
	wrong := context.Cause(ctx)
	if wrong == nil {
		ready := Ready(obj.GetGeneration(), err)
		_, wrong = WriteStatus(ctx, client, obj, func(obj O) { change(obj, ready) })
	}
	if wrong == nil || absent.Object(wrong) {
		return err
	}
	switch found := outcomeOf(err); {
	case !found.Failed():
		return wrong
	case ctx.Err() != nil:
		return err
	case found == reconcile.OutcomeTerminal:
		return fmt.Errorf("%v; %w", err, wrong)
	}
	return errors.Join(err, wrong)
}

// Ready returns a condition of the type Ready for the outcome of a run that saw
// an object in the given generation:
//
//	err                               status   reason
//	nil, RecheckWithin                True     Reconciled
//	RequeueAfter, RequeueWithin       Unknown  Progressing
//	Terminal                          False    TerminalError
//	any other                         False    Failed
//
// So Ready is Unknown only while there is work left, and a controller that checks again
// every hour has it True. The message is err's, cut to what the server takes. In place of
// a plan and its delay, which may be another one each time, it has "requeued"; of
// RecheckWithin "recheck", or nothing if that is all.
func Ready(generation int64, err error) metav1.Condition {
	c := metav1.Condition{Type: "Ready", ObservedGeneration: generation}
	switch outcomeOf(err) {
	case reconcile.OutcomeSucceeded:
		c.Status, c.Reason = metav1.ConditionTrue, "Reconciled"
	case reconcile.OutcomeRequeued:
		c.Status, c.Reason = metav1.ConditionUnknown, "Progressing"
	case reconcile.OutcomeTerminal:
		c.Status, c.Reason = metav1.ConditionFalse, "TerminalError"
	default:
		c.Status, c.Reason = metav1.ConditionFalse, "Failed"
	}
	if err != nil {
		c.Message = text.Cut(undelayed(err.Error(), err), 32768)
	}
	if c.Status == metav1.ConditionTrue && c.Message == "recheck" {
		c.Message = ""
	}
	return c
}

// outcomeOf returns what a Reconciler makes of err, as long as its policy retries.
func outcomeOf(err error) reconcile.Outcome {
	o, _ := reconcile.Classify(err, 1, func(error, int) (time.Duration, bool) { return 0, true })
	return o
}

// undelayed returns text without the delays of the plans in the tree of err.
func undelayed(text string, err error) string {
	switch e := err.(type) {
	case reconcile.RequeueError:
		what := "requeued"
		if outcomeOf(e) == reconcile.OutcomeSucceeded {
			what = "recheck"
		}
		return strings.ReplaceAll(text, e.Error(), what)
	case interface{ Unwrap() error }:
		return undelayed(text, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			text = undelayed(text, err)
		}
	}
	return text
}
