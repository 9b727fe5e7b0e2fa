// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemameta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/client-go/kubernetes/scheme"
)

// A Kind is one that a [Server] serves. Those that Kubernetes has are always there; others
// come from [CRDs] or [Types]. A Kind is not changed once a server has it.
type Kind struct {
	schema.GroupVersionKind

	Resource   string   // the plural, as in paths
	ShortNames []string // for discovery
	Categories []string // the same
	Cluster    bool     // its objects have no namespace
	Status     bool     // the status is a subresource
	Scale      *Scale   // the subresource scale; nil if there is none

	singular string
	builtIn  bool
	rules    rules
	scheme   *runtime.Scheme // of its Go type; nil if there is none
	goType   reflect.Type
	strict   runtime.Decoder
	lenient  runtime.Decoder
	custom   *custom // of a CRD; nil otherwise
	applies  func() (*applier, error)
}

// A Scale says where the replicas of a kind are, as paths such as ".spec.replicas".
// Selector may be empty.
type Scale struct{ Spec, Status, Selector string }

// rules are those of one kind that differ from those of most.
type rules struct {
	generation bool // it counts changes of its content
	versioned  bool // an update needs a resourceVersion
	upsert     bool // an update may create
	returned   bool // what is deleted is the answer
	orphans    bool // dependents stay by default
	statusOnly bool // an update of the status changes no metadata, as of kinds of CRD files
}

func (k *Kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// String returns the resource with its group, as "deployments.apps".
func (k *Kind) String() string { return k.resource().String() }

//go:embed builtin.txt
var builtinText string

// builtIn lists the kinds of Kubernetes: those that discovery of a server lists, in one
// version of each, as far as this client-go has them.
var builtIn = sync.OnceValue(func() []*Kind {
	var kinds []*Kind
	for line := range strings.Lines(builtinText) {
		f := strings.Fields(line)
		gv, err := schema.ParseGroupVersion(f[0])
		if err != nil {
			panic(err)
		}
		k := &Kind{GroupVersionKind: gv.WithKind(f[2]), Resource: f[1], builtIn: true}
		if !scheme.Scheme.Recognizes(k.GroupVersionKind) {
			continue
		}
		if f[3] != "-" {
			k.ShortNames = strings.Split(f[3], ",")
		}
		for _, flag := range f[4:] {
			switch flag {
			case "cluster":
				k.Cluster = true
			case "status":
				k.Status = true
			case "scale":
				k.Scale = &Scale{".spec.replicas", ".status.replicas", ""}
			case "statusonly":
				k.rules.statusOnly = true
			case "generation":
				k.rules.generation = true
			case "versioned":
				k.rules.versioned = true
			case "upsert":
				k.rules.upsert = true
			case "returned":
				k.rules.returned = true
			case "orphans":
				k.rules.orphans = true
			case "all", "api-extensions":
				k.Categories = append(k.Categories, flag)
			default:
				panic("builtin.txt: " + line)
			}
		}
		typed(k, scheme.Scheme)
		k.applies = sync.OnceValues(func() (*applier, error) { return newApplier(k) })
		kinds = append(kinds, k)
	}
	return kinds
})

// typed gives a kind its Go type.
func typed(k *Kind, s *runtime.Scheme) {
	o, err := s.New(k.GroupVersionKind)
	if err != nil {
		panic(err)
	}
	k.scheme, k.goType = s, reflect.TypeOf(o).Elem()
	k.strict = json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Strict: true})
	k.lenient = json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{})
	k.singular = strings.ToLower(k.Kind)
}

// Types returns the kinds of these objects, which are Go types of the scheme. They have
// namespaces, and a status apart from the rest if the type has a field Status; change
// what is not so. Unknown fields and wrong types are refused as by a server, but defaults
// and rules are in CRD files alone: [CRDs] is better where there are such files. It panics
// if the scheme does not know a type.
func Types(s *runtime.Scheme, objects ...runtime.Object) []*Kind {
	var kinds []*Kind
	for _, o := range objects {
		gvks, _, err := s.ObjectKinds(o)
		if err != nil {
			panic("kubesim: Types: " + err.Error())
		}
		k := &Kind{GroupVersionKind: gvks[0], Resource: plural(gvks[0].Kind), rules: rules{generation: true, versioned: true}}
		typed(k, s)
		_, k.Status = k.goType.FieldByName("Status")
		k.applies = sync.OnceValues(func() (*applier, error) { return newApplier(k) })
		kinds = append(kinds, k)
	}
	return kinds
}

// plural is how controller-gen makes one of a kind.
func plural(kind string) string {
	s := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(s, "s"), strings.HasSuffix(s, "x"), strings.HasSuffix(s, "ch"), strings.HasSuffix(s, "sh"):
		return s + "es"
	case strings.HasSuffix(s, "y") && !strings.ContainsAny(s[len(s)-2:len(s)-1], "aeiou"):
		return s[:len(s)-1] + "ies"
	}
	return s + "s"
}

// CRDs returns the kinds that these files define, or those of these folders whose names end in
// .yaml, .yml or .json. What is no CustomResourceDefinition is passed over. The test
// fails if there is none, or if one cannot be read. Of a kind with several versions the
// one is served that is stored.
func CRDs(t testing.TB, paths ...string) []*Kind {
	t.Helper()
	var kinds []*Kind
	for _, path := range paths {
		some := len(kinds)
		err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || file != path && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
				return err
			}
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			more, err := ReadCRDs(f)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			kinds = append(kinds, more...)
			return nil
		})
		if err == nil && len(kinds) == some {
			err = errors.New("there is no CustomResourceDefinition")
		}
		if err != nil {
			t.Fatalf("kubesim: CRDs: %s: %v", path, err)
		}
	}
	return kinds
}

// ReadCRDs is [CRDs] of a text of YAML documents, or of JSON.
func ReadCRDs(r io.Reader) ([]*Kind, error) {
	var kinds []*Kind
	for d := yaml.NewYAMLOrJSONDecoder(r, 4096); ; {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := d.Decode(&crd); errors.Is(err, io.EOF) {
			return kinds, nil
		} else if err != nil {
			return nil, err
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		k, err := define(&crd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", crd.Name, err)
		}
		kinds = append(kinds, k)
	}
}

// A custom is what a CRD says of its objects.
type custom struct {
	structural *structural.Structural
	validator  validation.SchemaValidator
	status     validation.SchemaValidator // of the status alone
	cel        *cel.Validator
	preserve   bool
	fields     []string // that may be selected by, as "spec.color"
}

func define(crd *apiextensionsv1.CustomResourceDefinition) (*Kind, error) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i < 0 {
		return nil, errors.New("no version is stored")
	}
	v := crd.Spec.Versions[i]
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("version %s has no schema", v.Name)
	}
	props := new(apiextensions.JSONSchemaProps)
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, err
	}
	c := &custom{preserve: crd.Spec.PreserveUnknownFields}
	var err error
	if c.structural, err = structural.NewStructural(props); err != nil {
		return nil, err
	}
	if err = defaulting.PruneDefaults(c.structural); err != nil {
		return nil, err
	}
	if c.validator, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, err
	}
	if status, ok := props.Properties["status"]; ok {
		if c.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, err
		}
	}
	c.cel = cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
	for _, f := range v.SelectableFields {
		c.fields = append(c.fields, strings.TrimPrefix(f.JSONPath, "."))
	}
	k := &Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind},
		Resource:         crd.Spec.Names.Plural, singular: crd.Spec.Names.Singular, ShortNames: crd.Spec.Names.ShortNames,
		Categories: crd.Spec.Names.Categories, Cluster: crd.Spec.Scope == apiextensionsv1.ClusterScoped,
		rules: rules{generation: true, versioned: true}, custom: c,
	}
	if v.Subresources != nil {
		k.Status = v.Subresources.Status != nil
		if s := v.Subresources.Scale; s != nil {
			k.Scale = &Scale{Spec: s.SpecReplicasPath, Status: s.StatusReplicasPath}
			if s.LabelSelectorPath != nil {
				k.Scale.Selector = *s.LabelSelectorPath
			}
		}
	}
	k.applies = sync.OnceValues(func() (*applier, error) { return newApplier(k) })
	return k, nil
}

// coerce drops what the schema does not know, and sets defaults. It returns what was
// dropped.
func (c *custom) coerce(o map[string]any) (unknown []string, err error) {
	meta, found, unknown, err := schemameta.GetObjectMetaWithOptions(o, schemameta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	apiVersion, kind := o["apiVersion"], o["kind"]
	if !c.preserve {
		unknown = append(unknown, pruning.PruneWithOptions(o, c.structural, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(o, c.structural)
	}
	bad, paths := schemameta.CoerceWithOptions(nil, o, c.structural, false, schemameta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if bad != nil {
		return nil, bad
	}
	o["apiVersion"], o["kind"] = apiVersion, kind
	if found {
		if err := schemameta.SetObjectMeta(o, meta); err != nil {
			return nil, err
		}
	}
	defaulting.Default(o, c.structural)
	return append(unknown, paths...), nil
}

// validate adds what is wrong with an object; old is nil if it is new.
func (c *custom) validate(errs field.ErrorList, o, old *unstructured.Unstructured, sub string) field.ErrorList {
	ctx := context.Background()
	if sub == "status" {
		if status, ok := o.Object["status"]; ok && c.status != nil {
			errs = append(errs, validation.ValidateCustomResource(field.NewPath("status"), status, c.status)...)
		}
	} else {
		errs = append(errs, validation.ValidateCustomResource(nil, o.Object, c.validator)...)
		errs = append(errs, validateEmbedded(ctx, o.Object, c.structural)...)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, o.Object)...)
	switch {
	case c.cel == nil:
	case slices.ContainsFunc(errs, func(e *field.Error) bool { return slices.Contains(blocking, e.Type) }):
		errs = append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
	default:
		var was any
		if old != nil {
			was = old.Object
		}
		more, _ := c.cel.Validate(ctx, nil, c.structural, o.Object, was, celconfig.RuntimeCELCostBudget)
		errs = append(errs, more...)
	}
	return errs
}

// validateEmbedded returns what is wrong with the metadata of objects inside an object.
func validateEmbedded(ctx context.Context, o map[string]any, s *structural.Structural) field.ErrorList {
	switch validate := any(schemameta.Validate).(type) {
	case func(context.Context, *field.Path, any, *structural.Structural, bool) field.ErrorList:
		return validate(ctx, nil, o, s, false)
	case func(*field.Path, any, *structural.Structural, bool) field.ErrorList: // before Kubernetes 1.37
		return validate(nil, o, s, false)
	default:
		panic(fmt.Sprintf("kubesim: this version of k8s.io/apiextensions-apiserver validates by a %T", validate))
	}
}

// blocking are the errors after which rules are not looked at.
var blocking = []field.ErrorType{field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}
