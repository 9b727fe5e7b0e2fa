// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	optionsvalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// This file changes objects. All of it is called under Server.mu.

// nameRule is how objects of a kind may be named.
func (k *Kind) nameRule() metavalidation.ValidateNameFunc {
	switch k.String() {
	case "namespaces":
		return metavalidation.NameIsDNSLabel
	case "services":
		return metavalidation.NameIsDNS1035Label
	case "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io":
		return segment
	}
	return metavalidation.NameIsDNSSubdomain
}

// segment says what is wrong with a name that only has to be a part of a path.
func segment(name string, prefix bool) []string {
	if !prefix && (name == "." || name == "..") {
		return []string{fmt.Sprintf("may not be '%s'", name)}
	}
	for _, c := range []string{"/", "%"} {
		if strings.Contains(name, c) {
			return []string{fmt.Sprintf("may not contain '%s'", c)}
		}
	}
	return nil
}

// otherUID is what a server says when the object is another one.
func otherUID(asked, is types.UID) error {
	//lint:ignore ST1005 these are the words of a server
	return fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", asked, is)
}

// orphaning is an old way to say what becomes of dependents.
func orphaning(options *metav1.DeleteOptions) *bool {
	//lint:ignore SA1019 clients may set it
	return options.OrphanDependents
}

// place sets the namespace of the request, or says that it is another one.
func (q *request) place(o *unstructured.Unstructured) error {
	switch ns := o.GetNamespace(); {
	case ns == q.space:
	case ns == "" || q.kind.Cluster:
		o.SetNamespace(q.space)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

func (s *Server) create(q *request) (*record, error) {
	if q.space == "" && !q.kind.Cluster {
		return nil, apierrors.NewMethodNotSupported(q.kind.resource(), "create")
	}
	options := &metav1.CreateOptions{DryRun: q.query["dryRun"], FieldManager: q.query.Get("fieldManager"), FieldValidation: q.query.Get("fieldValidation")}
	if errs := optionsvalidation.ValidateCreateOptions(options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	o, err := q.decode(q.body)
	if err != nil {
		return nil, err
	}
	return s.insert(q, o, nil)
}

// insert stores a new object.
func (s *Server) insert(q *request, o *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry) (*record, error) {
	k := q.kind
	if err := q.place(o); err != nil {
		return nil, err
	}
	o.SetManagedFields(nil)
	version := o.GetResourceVersion()
	o.SetResourceVersion("")
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetSelfLink("")
	if k.rules.generation {
		o.SetGeneration(1)
	}
	if k.Status && k.custom != nil {
		delete(o.Object, "status")
	} else if k.Status && k.builtIn {
		o.Object["status"] = k.newStatus()
	} else if k.Status {
		delete(o.Object, "status")
	}
	if k.builtIn && k.Kind == "Namespace" {
		o.Object["spec"] = map[string]any{"finalizers": []any{"kubernetes"}}
	}
	if err := s.admit(q, o.GetName()); err != nil {
		return nil, err
	}
	if prefix := o.GetGenerateName(); o.GetName() == "" && prefix != "" {
		for {
			s.named[k.String()+"|"+q.space+"/"+prefix]++
			o.SetName(prefix + suffix(s.named[k.String()+"|"+q.space+"/"+prefix]))
			if s.table(k).records[key(o.GetNamespace(), o.GetName())] == nil {
				s.patterns[o.GetName()], s.generated = prefix+"*", nil
				break
			}
		}
		if k.builtIn && k.Kind == "Namespace" {
			labels := o.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[corev1.LabelMetadataName] = o.GetName()
			o.SetLabels(labels)
		}
	}
	s.made++
	o.SetUID(uid(s.made))
	o.SetCreationTimestamp(metav1.Now())
	errs := metavalidation.ValidateObjectMetaAccessor(o, !k.Cluster, k.nameRule(), field.NewPath("metadata"))
	if k.custom != nil {
		errs = k.custom.validate(errs, o, nil, "")
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind(), o.GetName(), errs)
	}
	if old := s.table(k).records[key(o.GetNamespace(), o.GetName())]; old != nil {
		err := apierrors.NewAlreadyExists(k.resource(), o.GetName())
		if old.object.GetDeletionTimestamp() != nil {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return nil, err
	}
	if version != "" && version != "0" {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	if q.dryRun() {
		return &record{kind: k, object: o, managed: managed}, nil
	}
	return s.put(k, o, managed), nil
}

// suffix is that of the nth generated name: five letters, as clients may expect, and the
// same in each plan.
func suffix(n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	text := []byte("bbbbb")
	for i := len(text) - 1; n > 0 && i >= 0; i-- {
		text[i] = letters[n%len(letters)]
		n /= len(letters)
	}
	return string(text)
}

// admit refuses what a namespace does not allow.
func (s *Server) admit(q *request, name string) error {
	if q.space == "" {
		return nil
	}
	namespaces := s.groups[schema.GroupVersion{Version: "v1"}]["namespaces"]
	ns := s.table(namespaces).records[key("", q.space)]
	if ns == nil {
		return apierrors.NewNotFound(namespaces.resource(), q.space)
	}
	if ns.object.GetDeletionTimestamp() != nil {
		err := apierrors.NewForbidden(q.kind.resource(), name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", q.space))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating", Message: fmt.Sprintf("namespace %s is being terminated", q.space), Field: "metadata.namespace"}}
		return err
	}
	return nil
}

// newStatus is that of a new object.
func (k *Kind) newStatus() any {
	if k.Kind == "Namespace" {
		return map[string]any{"phase": "Active"}
	}
	empty, err := k.plain(reflect.New(k.goType).Interface().(runtime.Object))
	if err != nil || empty.Object["status"] == nil {
		return map[string]any{}
	}
	return empty.Object["status"]
}

func (s *Server) replace(q *request) (*record, bool, error) {
	options := &metav1.UpdateOptions{DryRun: q.query["dryRun"], FieldManager: q.query.Get("fieldManager"), FieldValidation: q.query.Get("fieldValidation")}
	if errs := optionsvalidation.ValidateUpdateOptions(options); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "UpdateOptions"}, "", errs)
	}
	o, err := q.decode(q.body)
	if err != nil {
		return nil, false, err
	}
	if err := q.place(o); err != nil {
		return nil, false, err
	}
	if o.GetName() != q.name {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), q.name))
	}
	old, err := s.get(q)
	if err != nil {
		if !q.kind.rules.upsert || q.sub != "" {
			return nil, false, err
		}
		if id := o.GetUID(); id != "" {
			return nil, false, apierrors.NewConflict(q.kind.resource(), q.name, otherUID(id, ""))
		}
		r, err := s.insert(q, o, nil)
		return r, true, err
	}
	r, err := s.update(q, old, o, nil, false)
	return r, false, err
}

// update stores another version of an object. It is asked for by a patch, or the whole
// object; managed has the owners of its fields if they are known already.
func (s *Server) update(q *request, old *record, o *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry, patch bool) (*record, error) {
	k, was := q.kind, old.object
	if id := o.GetUID(); id != "" && id != was.GetUID() && !patch {
		return nil, apierrors.NewConflict(k.resource(), q.name, otherUID(id, was.GetUID()))
	}
	v := o.GetResourceVersion()
	if _, err := strconv.ParseUint(cmp.Or(v, "0"), 10, 64); err != nil {
		return nil, err
	}
	switch {
	case v == "" || v == "0":
		if k.rules.versioned && !patch {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: k.Group, Kind: k.Resource}, q.name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
			})
		}
	case v != was.GetResourceVersion():
		return nil, apierrors.NewConflict(k.resource(), q.name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	is := s.prepared(q, o, was)
	is.SetResourceVersion(was.GetResourceVersion())
	errs := metavalidation.ValidateObjectMetaAccessorUpdate(is, was, field.NewPath("metadata"))
	errs = append(errs, k.validateUpdate(is, was)...)
	if k.custom != nil {
		errs = k.custom.validate(errs, is, was, q.sub)
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind(), q.name, errs)
	}
	is.SetManagedFields(nil)
	same := equality.Semantic.DeepEqual(is.Object, was.Object)
	if managed == nil && old.managed != nil && !same {
		var err error
		if managed, err = k.owned(was, is, old.managed, q.manager(), q.sub); err != nil {
			return nil, err
		}
	}
	if same && (managed == nil || equality.Semantic.DeepEqual(withoutTimes(managed), withoutTimes(old.managed))) {
		return old, nil // and no event
	}
	if q.dryRun() {
		return &record{kind: k, object: is, managed: managed}, nil
	}
	if is.GetDeletionTimestamp() != nil && len(is.GetFinalizers()) == 0 && !(k.builtIn && k.Kind == "Namespace") {
		is.SetResourceVersion(was.GetResourceVersion())
		s.drop(k, is, managed)
		return &record{kind: k, object: is, managed: managed}, nil
	}
	r := s.put(k, is, managed)
	if is.GetDeletionTimestamp() != nil {
		s.collectLater()
	}
	return r, nil
}

func withoutTimes(managed []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	out := slices.Clone(managed)
	for i := range out {
		out[i].Time = nil
	}
	return out
}

// prepared is what an update makes of an object: what may not be changed so is as it was.
func (s *Server) prepared(q *request, o, was *unstructured.Unstructured) *unstructured.Unstructured {
	k := q.kind
	is := o.DeepCopy()
	switch {
	case q.sub == "status" && k.builtIn && !k.rules.statusOnly:
		restore(is, was, "spec")
		if k.Kind == "Deployment" {
			is.SetLabels(was.GetLabels())
		}
		if k.Kind == "Pod" {
			is.SetOwnerReferences(was.GetOwnerReferences())
		}
	case q.sub == "status":
		status, ok := is.Object["status"]
		is = was.DeepCopy()
		delete(is.Object, "status")
		if ok {
			is.Object["status"] = status
		}
	case k.Status:
		restore(is, was, "status")
	}
	is.SetGeneration(was.GetGeneration())
	if was.GetGeneration() == 0 {
		unstructured.RemoveNestedField(is.Object, "metadata", "generation")
	}
	if is.GetUID() == "" {
		is.SetUID(was.GetUID())
	}
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	if at := was.GetDeletionTimestamp(); at != nil { // otherwise an update that sets it is invalid
		is.SetDeletionTimestamp(at)
	}
	if d := was.GetDeletionGracePeriodSeconds(); d != nil && is.GetDeletionGracePeriodSeconds() == nil {
		is.SetDeletionGracePeriodSeconds(d)
	}
	is.SetSelfLink("")
	if k.builtIn && k.Kind == "Namespace" && q.sub == "" {
		restore(is, was, "spec")
	}
	if k.rules.generation && q.sub == "" && k.changed(is, was) {
		is.SetGeneration(was.GetGeneration() + 1)
	}
	return is
}

func restore(is, was *unstructured.Unstructured, field string) {
	if v, ok := was.Object[field]; ok {
		is.Object[field] = runtime.DeepCopyJSONValue(v)
	} else {
		delete(is.Object, field)
	}
}

// changed reports whether what counts as a generation changed.
func (k *Kind) changed(is, was *unstructured.Unstructured) bool {
	_, spec := k.field("Spec")
	switch {
	case k.builtIn && spec:
		return !equality.Semantic.DeepEqual(is.Object["spec"], was.Object["spec"]) ||
			k.Kind == "Deployment" && !equality.Semantic.DeepEqual(is.GetAnnotations(), was.GetAnnotations())
	default:
		for _, o := range [][2]map[string]any{{is.Object, was.Object}, {was.Object, is.Object}} {
			for name, v := range o[0] {
				if name != "metadata" && !equality.Semantic.DeepEqual(v, o[1][name]) {
					return true
				}
			}
		}
	}
	return false
}

func (k *Kind) field(name string) (reflect.StructField, bool) {
	if k.goType == nil {
		return reflect.StructField{}, false
	}
	return k.goType.FieldByName(name)
}

// validateUpdate is the few rules of kinds of Kubernetes that controllers meet.
func (k *Kind) validateUpdate(is, was *unstructured.Unstructured) (errs field.ErrorList) {
	immutable := func(path ...string) {
		a, _, _ := unstructured.NestedFieldNoCopy(is.Object, path...)
		b, _, _ := unstructured.NestedFieldNoCopy(was.Object, path...)
		if !equality.Semantic.DeepEqual(a, b) {
			errs = append(errs, field.Invalid(field.NewPath(path[0], path[1:]...), a, metavalidation.FieldImmutableErrorMsg))
		}
	}
	if !k.builtIn {
		return nil
	}
	switch k.String() {
	case "configmaps", "secrets":
		if was.Object["immutable"] == true {
			for _, name := range []string{"data", "binaryData"} {
				if !equality.Semantic.DeepEqual(is.Object[name], was.Object[name]) {
					errs = append(errs, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
				}
			}
			if is.Object["immutable"] != true {
				errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
			}
		}
		if k.Kind == "Secret" {
			immutable("type")
		}
	case "deployments.apps", "replicasets.apps", "daemonsets.apps":
		immutable("spec", "selector")
	case "jobs.batch":
		immutable("spec", "template")
		immutable("spec", "completionMode")
	case "rolebindings.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io":
		if !equality.Semantic.DeepEqual(is.Object["roleRef"], was.Object["roleRef"]) {
			errs = append(errs, field.Invalid(field.NewPath("roleRef"), is.Object["roleRef"], "cannot change roleRef"))
		}
	}
	return errs
}

// patchOptions reads those of a patch, and refuses what is no patch of the kind.
func (q *request) patchOptions() (*metav1.PatchOptions, error) {
	options := &metav1.PatchOptions{FieldManager: q.query.Get("fieldManager"), DryRun: q.query["dryRun"], FieldValidation: q.query.Get("fieldValidation")}
	if v := q.query.Get("force"); v != "" {
		force := v == "true" || v == "1"
		options.Force = &force
	}
	supported := []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}
	if q.kind.custom != nil {
		supported = slices.Delete(supported, 2, 3)
	}
	if !slices.Contains(supported, q.media) {
		slices.Sort(supported)
		return nil, unsupported("the body of the request was in an unknown format - accepted media types include: " + strings.Join(supported, ", "))
	}
	if errs := optionsvalidation.ValidatePatchOptions(options, types.PatchType(q.media)); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", errs)
	}
	return options, nil
}

func unsupported(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: message,
	}}
}

// patch changes an object as a patch says, or makes it if something is applied.
func (s *Server) patch(q *request) (*record, bool, error) {
	options, err := q.patchOptions()
	if err != nil {
		return nil, false, err
	}
	kind := types.PatchType(q.media)
	old, err := s.get(q)
	if kind == types.ApplyYAMLPatchType {
		return s.apply(q, old, options)
	}
	if err != nil {
		return nil, false, err
	}
	body, err := q.kind.merge(kind, old.text(), q.body)
	if err != nil {
		return nil, false, err
	}
	o, err := q.decode(body)
	if err != nil {
		if kind != types.StrategicMergePatchType {
			err = apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(body), err.Error())})
		}
		return nil, false, err
	}
	if err := q.matches(o); err != nil {
		return nil, false, err
	}
	r, err := s.update(q, old, o, nil, true)
	return r, false, err
}

// matches says whether a patch leaves the name of an object alone.
func (q *request) matches(o *unstructured.Unstructured) error {
	if err := q.place(o); err != nil {
		return err
	}
	if o.GetName() != q.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), q.name))
	}
	return nil
}

// merge returns what a patch makes of a text.
func (k *Kind) merge(kind types.PatchType, was, patch []byte) ([]byte, error) {
	switch kind {
	case types.JSONPatchType:
		list, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
		out, err := list.Apply(was)
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return out, nil
	case types.MergePatchType:
		if err := json.Unmarshal(patch, &map[string]any{}); err != nil {
			return nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
		out, err := jsonpatch.MergePatch(was, patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return out, nil
	}
	if err := json.Unmarshal(patch, &map[string]any{}); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	out, err := strategicpatch.StrategicMergePatch(was, patch, reflect.New(k.goType).Interface())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// apply is server-side apply.
func (s *Server) apply(q *request, old *record, options *metav1.PatchOptions) (*record, bool, error) {
	k := q.kind
	content := map[string]any{}
	if err := yaml.Unmarshal(q.body, &content); err != nil {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	a, err := k.applies()
	if err != nil {
		return nil, false, err
	}
	live := &unstructured.Unstructured{Object: map[string]any{}}
	if old != nil {
		live = old.object.DeepCopy()
		live.SetManagedFields(old.managed)
	} else {
		live.SetGroupVersionKind(k.GroupVersionKind)
	}
	force := options.Force != nil && *options.Force
	merged, err := a.of(q.sub).Apply(live, &unstructured.Unstructured{Object: integers(content).(map[string]any)}, options.FieldManager, force)
	if err != nil {
		return nil, false, err
	}
	o := merged.(*unstructured.Unstructured)
	managed := o.GetManagedFields()
	o.SetManagedFields(nil)
	if o, err = q.decode(encode(o.Object)); err != nil {
		return nil, false, err
	}
	if old == nil {
		if id := o.GetUID(); id != "" {
			return nil, false, apierrors.NewConflict(k.resource(), q.name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", id))
		}
		if q.sub != "" {
			return nil, false, apierrors.NewNotFound(k.resource(), q.name)
		}
	}
	if err := q.matches(o); err != nil {
		return nil, false, err
	}
	if old == nil {
		r, err := s.insert(q, o, managed)
		return r, true, err
	}
	r, err := s.update(q, old, o, managed, true)
	return r, false, err
}

// integers makes whole numbers of YAML those of JSON in Kubernetes.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = integers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case int:
		return int64(v)
	}
	return v
}

// deleteOptions reads those of a request.
func (q *request) deleteOptions() (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if len(q.body) > 0 {
		if err := json.Unmarshal(q.body, options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else {
		options.DryRun = q.query["dryRun"]
		if p := q.query.Get("propagationPolicy"); p != "" {
			policy := metav1.DeletionPropagation(p)
			options.PropagationPolicy = &policy
		}
	}
	if errs := optionsvalidation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return options, nil
}

func (s *Server) delete(q *request) (int, []byte, error) {
	options, err := q.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	old, err := s.get(q)
	if err != nil {
		return 0, nil, err
	}
	r, gone, err := s.remove(q.kind, old, options)
	if err != nil {
		return 0, nil, err
	}
	if gone && !q.kind.rules.returned {
		return http.StatusOK, encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: q.name, Group: q.kind.Group, Kind: q.kind.Resource, UID: old.object.GetUID()},
		}), nil
	}
	return s.show(q, http.StatusOK, r, nil)
}

// remove deletes an object, or marks it if it has finalizers. It returns its last state,
// and whether it is gone.
func (s *Server) remove(k *Kind, old *record, options *metav1.DeleteOptions) (*record, bool, error) {
	o := old.object
	if p := options.Preconditions; p != nil {
		resource := schema.GroupResource{Group: k.Group, Resource: k.Kind}
		if p.UID != nil && *p.UID != o.GetUID() {
			return nil, false, apierrors.NewConflict(resource, o.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, o.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
			return nil, false, apierrors.NewConflict(resource, o.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, o.GetResourceVersion()))
		}
	}
	dry := slices.Contains(options.DryRun, metav1.DryRunAll)
	finalizers := k.finalizers(o.GetFinalizers(), options)
	namespace := k.builtIn && k.Kind == "Namespace"
	if len(finalizers) == 0 && !namespace {
		if !dry {
			s.drop(k, o, old.managed)
		}
		return old, true, nil
	}
	is := o.DeepCopy()
	if is.SetFinalizers(finalizers); len(finalizers) == 0 {
		unstructured.RemoveNestedField(is.Object, "metadata", "finalizers")
	}
	if is.GetDeletionTimestamp() == nil {
		now := metav1.Now()
		is.SetDeletionTimestamp(&now)
		if n := is.GetGeneration(); n > 0 {
			is.SetGeneration(n + 1)
		}
		if namespace {
			_ = unstructured.SetNestedField(is.Object, "Terminating", "status", "phase")
		} else {
			zero := int64(0)
			is.SetDeletionGracePeriodSeconds(&zero)
		}
	}
	if equality.Semantic.DeepEqual(is.Object, o.Object) {
		return old, false, nil
	}
	if dry {
		return &record{kind: k, object: is, managed: old.managed}, false, nil
	}
	r := s.put(k, is, old.managed)
	s.collectLater()
	return r, false, nil
}

// finalizers are those that an object has once it is deleted so.
func (k *Kind) finalizers(has []string, options *metav1.DeleteOptions) []string {
	var policy metav1.DeletionPropagation
	switch {
	case orphaning(options) != nil && *orphaning(options):
		policy = metav1.DeletePropagationOrphan
	case orphaning(options) != nil:
		policy = metav1.DeletePropagationBackground
	case options.PropagationPolicy != nil:
		policy = *options.PropagationPolicy
	case slices.Contains(has, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(has, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	case k.rules.orphans:
		policy = metav1.DeletePropagationOrphan
	}
	list := slices.DeleteFunc(slices.Clone(has), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch {
	case k.Kind == "Event":
	case policy == metav1.DeletePropagationOrphan:
		list = append(list, metav1.FinalizerOrphanDependents)
	case policy == metav1.DeletePropagationForeground:
		list = append(list, metav1.FinalizerDeleteDependents)
	}
	return list
}

// deleteAll deletes what a list would show.
func (s *Server) deleteAll(q *request) (int, []byte, error) {
	options, err := q.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	f, err := q.filter()
	if err != nil {
		return 0, nil, err
	}
	records := s.table(q.kind).find(f)
	for _, r := range records {
		if _, _, err := s.remove(q.kind, r, options); err != nil {
			return 0, nil, err
		}
	}
	list := map[string]any{"resourceVersion": fmt.Sprint(s.version)}
	if q.kind.custom != nil {
		list["continue"] = ""
	}
	return http.StatusOK, listOf(q, list, records), nil
}

// token says where a list goes on.
func token(version int64, last string) string {
	return base64.RawURLEncoding.EncodeToString(encode(struct {
		V     string `json:"v"`
		RV    int64  `json:"rv"`
		Start string `json:"start"`
	}{"meta.k8s.io/v1", version, last + "\x00"}))
}

func readToken(text string) (version int64, last string, err error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return 0, "", err
	}
	var t struct {
		V     string `json:"v"`
		RV    int64  `json:"rv"`
		Start string `json:"start"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return 0, "", err
	}
	switch {
	case t.V != "meta.k8s.io/v1":
		return 0, "", fmt.Errorf("server does not recognize this encoded version %q", t.V)
	case t.RV == 0:
		return 0, "", errors.New("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.Start == "":
		return 0, "", errors.New("encoded start key empty (version meta.k8s.io/v1)")
	}
	return t.RV, strings.TrimSuffix(t.Start, "\x00"), nil
}

// tooOld is what a list of an earlier version gets.
func tooOld(q *request, start string) error {
	if q.list.Continue == "" {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = token(-1, start)
	return err
}
