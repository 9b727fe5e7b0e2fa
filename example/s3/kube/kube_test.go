// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/example/s3/internal/fed"
	"github.com/reconkernel/reconcile/example/s3/internal/s3test"
)

// example is the ConfigMap that a user is told to try, and role what the program
// may do.
var example, role string

func TestMain(m *testing.M) {
	for name, text := range map[string]*string{"wish.yaml": &example, "rbac.yaml": &role} {
		data, err := os.ReadFile(name)
		if err != nil {
			log.Fatal(err)
		}
		*text = string(data)
	}
	os.Exit(kubetest.Main(m))
}

// A world is that of s3test with a namespace of a real cluster, and a controller
// between the two.
type world struct {
	*s3test.World
	server *kubetest.Server
	admin  kubernetes.Interface
	o      options
}

// newWorld starts a world that lists and looks so often. The controller may do
// what rbac.yaml says and no more.
func newWorld(t *testing.T, poll, recheck time.Duration) *world {
	t.Helper()
	w := &world{World: s3test.New(t), server: kubetest.Shared(t)}
	w.o = options{Options: fed.New(), namespace: w.server.Namespace(t)}
	w.o.Poll, w.o.Recheck = poll, recheck
	var err error
	w.admin, err = kubernetes.NewForConfig(w.server.Admin())
	w.Must(err)
	w.server.KubectlInput(t, role, "apply", "-n", w.o.namespace, "-f", "-")
	w.server.Kubectl(t, "create", "rolebinding", "s3", "-n", w.o.namespace, "--role=s3", "--user="+w.o.namespace)
	client, err := kubernetes.NewForConfig(w.server.User(w.o.namespace))
	w.Must(err)
	kubetest.Eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps(w.o.namespace).List(w.Ctx, metav1.ListOptions{LabelSelector: selector})
		return err
	})
	w.Background(func(ctx context.Context) error { return control(ctx, client, w.Store, w.o, w.Told) })
	return w
}

// configMap makes one; a text of "" is no wish at all.
func configMap(name, text string) *corev1.ConfigMap {
	key, value, _ := strings.Cut(selector, "=")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{key: value}}}
	if text != "" {
		cm.Data = map[string]string{wishKey: text}
	}
	return cm
}

func (w *world) create(name, text string) {
	_, err := w.admin.CoreV1().ConfigMaps(w.o.namespace).Create(w.Ctx, configMap(name, text), metav1.CreateOptions{})
	w.Must(err)
}

func (w *world) update(name, text string) {
	_, err := w.admin.CoreV1().ConfigMaps(w.o.namespace).Update(w.Ctx, configMap(name, text), metav1.UpdateOptions{})
	w.Must(err)
}

func (w *world) delete(name string) {
	w.Must(w.admin.CoreV1().ConfigMaps(w.o.namespace).Delete(w.Ctx, name, metav1.DeleteOptions{}))
}

// untilEvent waits for an event of a ConfigMap whose note has that text.
func (w *world) untilEvent(t *testing.T, name, reason, note string) {
	t.Helper()
	all, err := w.admin.EventsV1().Events(w.o.namespace).Watch(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	defer all.Stop()
	for change := range all.ResultChan() {
		e, ok := change.Object.(*eventsv1.Event)
		if ok && e.Type == corev1.EventTypeWarning && e.Reason == reason && e.Regarding.Kind == "ConfigMap" && e.Regarding.Name == name &&
			strings.Contains(e.Note, note) {
			return
		}
	}
	t.Fatalf("there is no event %s of %s with %q", reason, name, note)
}

// untilRefused waits until a wish is refused with that text, in the result of
// the run and in an event.
func (w *world) untilRefused(t *testing.T, name, text string) {
	t.Helper()
	w.Until("the wish for "+name+" is refused", func(r reconcile.Result[string]) bool {
		return r.Item == name && r.Outcome == reconcile.TerminalError && strings.Contains(r.Err.Error(), text)
	})
	w.untilEvent(t, name, "TerminalError", text)
}

func TestWishesInConfigMaps(t *testing.T) {
	w := newWorld(t, 500*time.Millisecond, 100*time.Millisecond)
	configMaps := w.admin.CoreV1().ConfigMaps(w.o.namespace)
	_, err := configMaps.Create(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "no-wish"}}, metav1.CreateOptions{})
	w.Must(err)
	w.create("first", "{}")
	w.create("second", "versioning: true\nmarkers: {README: hello}\n")
	w.UntilBuckets("first", "second")
	marker := func() string { return w.Marker("second", "README") }
	w.Until("the marker is written", func(reconcile.Result[string]) bool { return marker() != "" })

	// Another wish, then some that cannot be read: the last good state stays.
	before := marker()
	w.update("second", "versioning: true\nmarkers: {README: bye}\n")
	w.Until("the marker is another", func(reconcile.Result[string]) bool { return marker() != before && marker() != "" })
	before = marker()
	w.update("second", "versioning: perhaps\n")
	w.untilRefused(t, "second", "the ConfigMap "+w.o.namespace+`/second:1: want true or false, not "perhaps"`)
	w.update("first", "")
	w.untilRefused(t, "first", "the ConfigMap "+w.o.namespace+"/first: wish is missing among its data; want the wish there, {} for a bare bucket")
	w.create("a", "{}") // no bucket has such a name
	w.untilRefused(t, "a", `bucket "a": its name is not valid; want 3 to 63 of a-z`)
	if got := w.Buckets(); !slices.Equal(got, []string{"first", "second"}) || marker() != before {
		t.Errorf("bad wishes have changed something; there are the buckets %q", got)
	}
	w.delete("a")
	w.Until("the wish that could not be is forgotten", func(r reconcile.Result[string]) bool {
		return r.Item == "a" && r.Outcome == reconcile.Succeeded
	})

	// Drift.
	w.update("first", "{}")
	w.Must(w.Hand.RemoveBucket(w.Ctx, "first"))
	w.UntilBuckets("first", "second")

	// While the API server is away, nothing is taken for not wished, and drift is
	// mended all the same.
	w.server.API.Kill()
	w.Must(w.Hand.RemoveBucket(w.Ctx, "first"))
	w.UntilBuckets("first", "second")
	w.Must(w.server.API.Start(w.Ctx))
	w.create("third", "{}")
	w.UntilBuckets("first", "second", "third")

	// Deleted, or without the label.
	w.delete("second")
	w.UntilBuckets("first", "third")
	w.server.Kubectl(t, "label", "configmap", "first", "-n", w.o.namespace, "s3.example.com/wish-")
	w.UntilBuckets("third")
}

// Changes are events: none of them waits for a poll or for the next look.
func TestEventsAlone(t *testing.T) {
	w := newWorld(t, time.Hour, time.Hour)
	w.server.KubectlInput(t, example, "apply", "-n", w.o.namespace, "-f", "-")
	w.UntilBuckets("payroll")
	if w.Marker("payroll", "README") == "" {
		t.Error("the marker is not written")
	}
	w.update("payroll", "{}")
	w.Until("versioning is off", func(reconcile.Result[string]) bool {
		v, err := w.Hand.GetBucketVersioning(w.Ctx, "payroll")
		w.Must(err)
		return !v.Enabled()
	})
	w.delete("payroll")
	w.UntilBuckets()
}

// The program finds its cluster and namespace as kubectl does, and says what is
// missing if it may not list the wishes.
func TestConnect(t *testing.T) {
	server := kubetest.Shared(t)
	namespace := server.Namespace(t)
	kubeconfig := func(user *rest.Config) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "config")
		err := clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: user.Host, CertificateAuthorityData: user.CAData}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: user.CertData, ClientKeyData: user.KeyData}},
			Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u", Namespace: namespace}},
			CurrentContext: "x",
		}, file)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	admin := kubeconfig(server.Admin())
	o := options{kubeconfig: admin}
	if _, err := o.connect(t.Context()); err != nil || o.namespace != namespace {
		t.Errorf("connect returns %v, and the namespace is %q, want %q", err, o.namespace, namespace)
	}
	o = options{kubeconfig: admin, namespace: "another"}
	if _, err := o.connect(t.Context()); err != nil || o.namespace != "another" {
		t.Errorf("connect returns %v, and the namespace is %q, want the one that was given", err, o.namespace)
	}
	for _, test := range []struct{ file, want string }{
		{kubeconfig(server.User("nobody")), "rbac.yaml"},
		{admin + ".none", "no cluster: give -kubeconfig"},
	} {
		o := options{kubeconfig: test.file}
		if _, err := o.connect(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("connect returns %v, want an error with %q", err, test.want)
		}
	}
}
