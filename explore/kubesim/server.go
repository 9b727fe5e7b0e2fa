// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Server is an API server in memory. It is an [http.Handler], and [Server.Config] is how
// clients of a plan reach it. It has the namespaces that a new cluster has. [NewServer]
// makes one; its methods may be called from any goroutine, and none blocks but
// ServeHTTP of a watch.
type Server struct {
	groups map[schema.GroupVersion]map[string]*Kind // by resource

	// NoCollector leaves out what the controllers of a cluster do: the garbage
	// collector, and that of namespaces. It is set before the first use.
	NoCollector bool

	// NoWatchList refuses watches that begin with a list, as servers do that do not have
	// the feature WatchList: so informers list first, and such a list may be stale. It is
	// set before the first use.
	NoWatchList bool

	// Scheme has the Go types that Create, Update, Get and List are called with; nil means
	// those of client-go. It is set before the first use.
	Scheme *runtime.Scheme

	mu         sync.Mutex // guards the fields below
	version    int64
	compacted  int64             // versions before it are too old
	started    int64             // and before it for watches
	upAt       time.Time         // until then connections are refused
	made       int               // objects
	named      map[string]int    // objects with a generated name, by what that is generated from
	patterns   map[string]string // by generated name: that with an asterisk
	generated  *strings.Replacer // of all of them; nil if there is another one since
	tables     map[*Kind]*table
	ids        map[types.UID]*record // all objects
	all        map[*ways]bool
	collecting bool
}

// NewServer returns a server of the kinds that Kubernetes has, and of these.
func NewServer(kinds ...*Kind) *Server {
	s := &Server{groups: map[schema.GroupVersion]map[string]*Kind{}, tables: map[*Kind]*table{}, ids: map[types.UID]*record{}, named: map[string]int{}, patterns: map[string]string{}, all: map[*ways]bool{}}
	for _, list := range [][]*Kind{builtIn(), kinds} {
		for _, k := range list {
			if s.groups[k.GroupVersion()] == nil {
				s.groups[k.GroupVersion()] = map[string]*Kind{}
			}
			s.groups[k.GroupVersion()][k.Resource] = k
		}
	}
	for _, name := range firstNamespaces {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
		if _, err := s.createObject(ns); err != nil {
			panic(err)
		}
	}
	return s
}

var firstNamespaces = []string{"default", "kube-node-lease", "kube-public", "kube-system"}

// A request is what a client asks for.
type request struct {
	method  string
	kind    *Kind
	space   string // namespace
	name    string
	sub     string
	query   url.Values
	list    internalversion.ListOptions
	media   string // content type of the body
	partial bool   // metadata alone
	agent   string // who asks, as owners of fields are named
	body    []byte
}

// parse returns the request of a path; its kind is nil if the path is of no kind. The error
// is one for the client.
func (s *Server) parse(r *http.Request) (*request, error) {
	q := &request{method: r.Method, query: r.URL.Query(), agent: "unknown"}
	q.media, _, _ = strings.Cut(r.Header.Get("Content-Type"), ";")
	if agent, _, _ := strings.Cut(r.UserAgent(), "/"); agent != "" {
		q.agent = agent
	}
	q.partial = strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return q, nil
	}
	if parts[0] == "namespaces" && len(parts) > 2 && !(len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize")) {
		q.space, parts = parts[1], parts[2:]
	}
	if q.kind = s.groups[gv][parts[0]]; q.kind == nil {
		return q, nil
	}
	if len(parts) > 1 {
		q.name = parts[1]
	}
	if len(parts) > 2 {
		q.sub = strings.Join(parts[2:], "/")
	}
	if q.space != "" && q.kind.Cluster || q.space == "" && !q.kind.Cluster && q.name != "" {
		q.kind = nil
		return q, nil
	}
	if q.name == "" && (q.method == http.MethodGet || q.method == http.MethodDelete) {
		if err := internalscheme.ParameterCodec.DecodeParameters(q.query, metav1.SchemeGroupVersion, &q.list); err != nil {
			return q, apierrors.NewBadRequest(err.Error())
		}
		internalversion.SetListOptionsDefaults(&q.list, !s.NoWatchList)
		if errs := listvalidation.ValidateListOptions(&q.list, true); len(errs) > 0 {
			return q, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
		}
	}
	return q, nil
}

// watches reports whether the request is a watch. A request of one object is none, whatever
// it asks for.
func (q *request) watches() bool { return q.method == http.MethodGet && q.list.Watch }

func (q *request) filter() (filter, error) {
	f := filter{q.space, q.list.LabelSelector, q.list.FieldSelector}
	if f.fields != nil {
		for _, r := range f.fields.Requirements() {
			if !q.kind.selectable(r.Field) {
				return f, apierrors.NewBadRequest(q.kind.unknownField(r.Field))
			}
		}
	}
	return f, nil
}

func (k *Kind) unknownField(name string) string {
	if k.custom != nil {
		return "field label not supported: " + name
	}
	if selectable[k.String()] == nil {
		return fmt.Sprintf("%q is not a known field selector: only %q, %q", name, "metadata.name", "metadata.namespace")
	}
	return "field label not supported: " + name
}

// version returns that which a list or watch asks for, 0 for none.
func (q *request) version() (int64, error) {
	text := q.list.ResourceVersion
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", text))
	}
	return v, nil
}

func (q *request) dryRun() bool { return q.query.Get("dryRun") == metav1.DryRunAll }

// manager is who is said to change fields.
func (q *request) manager() string {
	if m := q.query.Get("fieldManager"); m != "" {
		return m
	}
	return q.agent
}

func tooLarge(asked, is int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, is), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// statusOf returns an error as clients know it.
func statusOf(err error) metav1.Status {
	var status metav1.Status
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	} else {
		status = metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}

// An answer is what a client gets.
type answer struct {
	code int
	body []byte
}

func failed(err error) answer {
	status := statusOf(err)
	return answer{int(status.Code), encode(status)}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q, err := s.parse(r)
	var a answer
	switch {
	case err != nil:
		a = failed(err)
	case q.kind != nil && q.watches():
		watch, err := s.watch(r.Context(), q, nil)
		if err == nil {
			var timeout time.Duration
			if q.list.TimeoutSeconds != nil {
				timeout = time.Duration(*q.list.TimeoutSeconds) * time.Second
			}
			watch.serve(w, timeout)
			return
		}
		a = failed(err)
	default:
		if q.body, err = io.ReadAll(r.Body); err != nil {
			a = failed(apierrors.NewBadRequest(err.Error()))
			break
		}
		a = s.answer(q, r.URL.Path)
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body) // the client is gone
}

// answer does what a request asks for, if it is no watch.
func (s *Server) answer(q *request, path string) answer {
	if q.kind == nil {
		return s.discover(q, path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	code, body, err := s.serve(q)
	if err != nil {
		return failed(err)
	}
	return answer{code, body}
}

var errNoResource = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
	Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
}}

func (s *Server) serve(q *request) (int, []byte, error) {
	k := q.kind
	switch {
	case q.sub == "":
	case q.sub == "status" && k.Status:
	case q.sub == "scale" && k.Scale != nil:
		return s.scale(q)
	default:
		return 0, nil, errNoResource
	}
	switch {
	case q.method == http.MethodGet && q.name == "":
		body, err := s.list(q)
		return http.StatusOK, body, err
	case q.method == http.MethodGet:
		r, err := s.get(q)
		return s.show(q, http.StatusOK, r, err)
	case q.method == http.MethodPost && (q.name == "" || k.custom != nil && q.sub == ""):
		r, err := s.create(q)
		return s.show(q, http.StatusCreated, r, err)
	case q.method == http.MethodPut && q.name != "":
		r, made, err := s.replace(q)
		return s.show(q, okOr(made), r, err)
	case q.method == http.MethodPut && k.custom != nil:
		return 0, nil, apierrors.NewBadRequest("name must be provided")
	case q.method == http.MethodPatch && q.name != "":
		r, made, err := s.patch(q)
		return s.show(q, okOr(made), r, err)
	case q.method == http.MethodDelete && q.name != "" && q.sub == "":
		return s.delete(q)
	case q.method == http.MethodDelete && q.sub == "" && !(k.builtIn && k.Kind == "Namespace"):
		return s.deleteAll(q)
	}
	return 0, nil, apierrors.NewMethodNotSupported(k.resource(), strings.ToLower(q.method))
}

func okOr(made bool) int {
	if made {
		return http.StatusCreated
	}
	return http.StatusOK
}

// show is an object as an answer.
func (s *Server) show(q *request, code int, r *record, err error) (int, []byte, error) {
	if err != nil {
		return 0, nil, err
	}
	if q.partial {
		return code, r.metadata(), nil
	}
	return code, r.text(), nil
}

func (s *Server) get(q *request) (*record, error) {
	if r := s.table(q.kind).records[key(q.space, q.name)]; r != nil {
		return r, nil
	}
	return nil, apierrors.NewNotFound(q.kind.resource(), q.name)
}

// list answers with a list, or the next part of one.
func (s *Server) list(q *request) ([]byte, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	at, start := s.version, ""
	version, err := q.version()
	if err != nil {
		return nil, err
	}
	if version > s.version {
		return nil, tooLarge(version, s.version)
	}
	exact := q.list.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		q.list.ResourceVersionMatch == "" && version > 0 && q.list.Limit > 0
	if exact {
		at = version
	}
	if q.list.Continue != "" {
		if at, start, err = readToken(q.list.Continue); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("continue key is not valid: %v", err))
		}
		if version > 0 {
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if at < 0 {
			at = s.version
		}
	}
	t := s.table(q.kind)
	if at < s.version {
		if at < s.compacted {
			return nil, tooOld(q, start)
		}
		t = t.at(at)
	}
	meta := map[string]any{"resourceVersion": strconv.FormatInt(at, 10)}
	if q.kind.custom != nil {
		meta["continue"] = ""
	}
	limit := q.list.Limit
	if q.list.ResourceVersion == "0" { // it comes from a cache, in one part
		limit = 0
	}
	var records []*record
	inRange := t.find(filter{namespace: f.namespace})
	for i, r := range inRange {
		if start != "" && r.key() <= start || !f.matches(r) {
			continue
		}
		records = append(records, r)
		left := len(inRange) - i - 1
		if int64(len(records)) == limit && left > 0 { // which may not match
			if (f.labels == nil || f.labels.Empty()) && (f.fields == nil || f.fields.Empty()) {
				meta["remainingItemCount"] = left
			}
			meta["continue"] = token(at, r.key())
			break
		}
	}
	return listOf(q, meta, records), nil
}

func listOf(q *request, meta map[string]any, records []*record) []byte {
	apiVersion, kind := q.kind.GroupVersion().String(), q.kind.Kind+"List"
	if q.partial {
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	head := encode(map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta})
	body := append(head[:len(head)-1], `,"items":[`...)
	for i, r := range records {
		if i > 0 {
			body = append(body, ',')
		}
		if q.partial {
			body = append(body, r.metadata()...)
		} else {
			body = append(body, r.item()...)
		}
	}
	return append(body, "]}"...)
}

// strictly is how unknown fields are met, as ?fieldValidation= has it: as a server does
// by default, it drops them.
func (q *request) strictly() bool {
	return q.query.Get("fieldValidation") == metav1.FieldValidationStrict
}

// decode reads an object of the kind of the request.
func (q *request) decode(body []byte) (*unstructured.Unstructured, error) {
	k := q.kind
	if k.goType != nil {
		return k.decodeTyped(q, body)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.GroupVersionKind().GroupVersion() != k.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", o.GetAPIVersion(), k.GroupVersion()))
	}
	if o.GetKind() != k.Kind {
		return nil, apierrors.NewInvalid(k.GroupKind(), o.GetName(), field.ErrorList{field.Invalid(field.NewPath("kind"), o.GetKind(), "must be "+k.Kind)})
	}
	unknown, err := k.custom.coerce(o.Object)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", o.GetKind(), k.Version, k.Kind, err))
	}
	if len(unknown) > 0 && q.strictly() {
		errs := make([]error, len(unknown))
		for i, u := range unknown {
			errs[i] = fmt.Errorf("unknown field %q", u)
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", o.GetKind(), k.Version, k.Kind, runtime.NewStrictDecodingError(errs)))
	}
	return o, nil
}

func (k *Kind) decodeTyped(q *request, body []byte) (*unstructured.Unstructured, error) {
	decoder := k.lenient
	if q.strictly() {
		decoder = k.strict
	}
	o, gvk, err := decoder.Decode(body, &k.GroupVersionKind, nil)
	if err == nil && gvk.GroupVersion() != k.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gvk.GroupVersion(), k.GroupVersion()))
	}
	if err == nil && gvk.Kind != k.Kind {
		err = fmt.Errorf("converting (%s) to (%s): unknown conversion", gvk.Kind, k.Kind)
	}
	if err != nil {
		if gvk == nil {
			gvk = &k.GroupVersionKind
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, k.Kind, err))
	}
	switch o := o.(type) {
	case *corev1.Secret: // its stringData is never read
		for name, text := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			o.Data[name] = []byte(text)
		}
		o.StringData = nil
	case *corev1.Namespace:
		if o.Name != "" {
			metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
		}
	}
	return k.plain(o)
}

// plain turns an object of the Go type into what is stored.
func (k *Kind) plain(o runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(k.GroupVersionKind)
	return u, nil
}

// createObject puts in an object of any kind, as another client does.
func (s *Server) createObject(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k := s.kindOf(o.GroupVersionKind())
	if k == nil {
		return nil, fmt.Errorf("kubesim: no kind %v", o.GroupVersionKind())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.create(&request{method: http.MethodPost, kind: k, space: o.GetNamespace(), agent: "play", body: encode(o.Object)})
	if err != nil {
		return nil, err
	}
	return r.object.DeepCopy(), nil
}

func (s *Server) kindOf(gvk schema.GroupVersionKind) *Kind {
	for _, k := range s.groups[gvk.GroupVersion()] {
		if k.Kind == gvk.Kind {
			return k
		}
	}
	return nil
}

// uid returns that of the nth object.
func uid(n int) types.UID { return types.UID(fmt.Sprintf("%s%012d", uidPrefix, n)) }

const uidPrefix = "00000000-0000-4000-8000-"
