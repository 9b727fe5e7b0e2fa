// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kubetest_test

import (
	"fmt"
	"strings"
)

// A sequence is requests that follow each other.
type sequence struct {
	name  string
	steps []step
}

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// A sample is a kind, and what is asked of it.
type sample struct {
	name, apiVersion, kind, path string // of the collection, in a namespace if it has one
	content                      string // fields of a whole object, as JSON
	change                       string // a merge patch of that
	wrong                        string // a content with a wrong type
	namespaced, custom           bool
	versioned                    bool // an update needs a version
}

func (s sample) object(meta, content string) string {
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{%s}`, s.apiVersion, s.kind, meta)
	if content != "" {
		text += "," + content
	}
	return text + "}"
}

// common is what is asked of each kind.
func (s sample) common() []step {
	a := s.path + "/a"
	named := func(name string) string { return s.object(fmt.Sprintf("%q:%q", "name", name), s.content) }
	steps := []step{
		{do: "GET", path: s.path},
		{do: "GET", path: a},
		{do: "DELETE", path: a},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"labels":{"x":"y"}}}`},
		{do: "POST", path: s.path, body: named("a")},
		{do: "POST", path: s.path, body: named("a")},
		{do: "GET", path: a},
		{do: "GET", path: s.path},
		{do: "POST", path: s.path, body: s.object(``, s.content)},
		{do: "POST", path: s.path, body: named("Not A Name")},
		{do: "POST", path: s.path, body: s.object(`"name":"labels","labels":{"a b":"c"}`, s.content)},
		{do: "POST", path: s.path, body: s.object(`"name":"owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x"}]`, s.content), codeAlone: true},
		{do: "POST", path: s.path, body: s.object(`"name":"final","finalizers":["no domain"]`, s.content), codeAlone: true},
		{do: "POST", path: s.path, body: s.object(`"name":"versioned","resourceVersion":"5"`, s.content), codeAlone: true},
		{do: "POST", path: s.path, body: s.object(`"name":"alike","uid":"11111111-2222-3333-4444-555555555555","generation":7,"deletionTimestamp":"2026-01-01T00:00:00Z","selfLink":"x"`, s.content)},
		{do: "POST", path: s.path, body: s.object(`"generateName":"made-"`, s.content)},
		{do: "POST", path: s.path + "?dryRun=All", body: named("dry")},
		{do: "GET", path: s.path + "/dry"},
		{do: "POST", path: s.path + "?dryRun=Some", body: named("dry"), codeAlone: true},
		{do: "POST", path: s.path, body: `{"apiVersion":"v1","kind":"Other","metadata":{"name":"other"}}`, codeAlone: true},
		{do: "POST", path: s.path, body: s.object(`"name":"wrong"`, s.wrong), codeAlone: s.custom},
		{do: "POST", path: s.path, body: `{"no JSON`, codeAlone: true},
		{do: "POST", path: s.path, body: s.object(`"name":"unknown","unknown":1`, s.content+`,"unknown":{"a":1}`)},
		{do: "GET", path: s.path + "/unknown"},
		{do: "POST", path: s.path + "?fieldValidation=Strict", body: s.object(`"name":"strict"`, s.content+`,"unknown":{"a":1}`), codeAlone: true},
		{do: "DELETE", path: s.path + "/unknown"},
		{do: "DELETE", path: s.path + "/alike"},

		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"labels":{"app":"one","tier":"x"}}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"labels":{"tier":null}}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"labels":{"app":"one"}}}`},
		{do: "PATCH", path: a, media: mergePatch, body: s.change},
		{do: "PATCH", path: a, media: mergePatch, body: s.change},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"name":"b"}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"namespace":"other"}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"uid":"11111111-2222-3333-4444-555555555555"}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"resourceVersion":"1"}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"resourceVersion":"{version ` + a + `}","annotations":{"n":"1"}}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"generation":100,"creationTimestamp":"2000-01-01T00:00:00Z"}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, codeAlone: true},
		{do: "PATCH", path: a, media: mergePatch, body: `[1]`, codeAlone: true},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"labels":{"a b":"c"}}}`, codeAlone: true},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"labels":7}}`, codeAlone: true},
		{do: "PATCH", path: a, media: jsonPatch, body: `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`},
		{do: "PATCH", path: a, media: jsonPatch, body: `[{"op":"test","path":"/metadata/labels/json","value":"no"},{"op":"remove","path":"/metadata/labels/json"}]`, codeAlone: true},
		{do: "PATCH", path: a, media: jsonPatch, body: `[{"op":"remove","path":"/metadata/labels/none"}]`, codeAlone: true},
		{do: "PATCH", path: a, media: jsonPatch, body: `{"op":"remove"}`, codeAlone: true},
		{do: "PATCH", path: a, media: jsonPatch, body: `[{"op":"test","path":"/metadata/name","value":"a"},{"op":"remove","path":"/metadata/labels/json"}]`},
		{do: "PATCH", path: a, media: "application/unknown", body: `{}`, codeAlone: true},
		{do: "PATCH", path: a, media: strategicPatch, body: `{"metadata":{"annotations":{"strategic":"1"}}}`, codeAlone: s.custom},
		{do: "PATCH", path: a + "?dryRun=All", media: mergePatch, body: `{"metadata":{"labels":{"dry":"x"}}}`},
		{do: "GET", path: a},

		{do: "PUT", path: a, body: s.object(`"name":"a","resourceVersion":"{version `+a+`}","labels":{"put":"1"}`, s.content)},
		{do: "PUT", path: a, body: s.object(`"name":"a","resourceVersion":"{version `+a+`}","labels":{"put":"1"}`, s.content)},
		{do: "PUT", path: a, body: s.object(`"name":"a","resourceVersion":"1"`, s.content)},
		{do: "PUT", path: a, body: s.object(`"name":"a","labels":{"put":"2"}`, s.content)},
		{do: "PUT", path: a, body: s.object(`"name":"b"`, s.content)},
		{do: "PUT", path: a, body: s.object(`"name":"a","namespace":"other"`, s.content)},
		{do: "PUT", path: a, body: s.object(`"name":"a","uid":"11111111-2222-3333-4444-555555555555","resourceVersion":"{version `+a+`}"`, s.content)},
		{do: "PUT", path: a, body: s.object(`"name":"a","resourceVersion":"x"`, s.content), codeAlone: true},
		{do: "PUT", path: s.path + "/none", body: named("none"), codeAlone: true},
		{do: "GET", path: a + "?partial=1"},
		{do: "GET", path: s.path + "?partial=1&limit=1"},

		{do: "GET", path: s.path + "?labelSelector=put%3D2"},
		{do: "GET", path: s.path + "?labelSelector=put"},
		{do: "GET", path: s.path + "?labelSelector=!put"},
		{do: "GET", path: s.path + "?labelSelector=put+in+(1,2)"},
		{do: "GET", path: s.path + "?labelSelector=put%3D%3D%3D", codeAlone: true},
		{do: "GET", path: s.path + "?fieldSelector=metadata.name%3Da"},
		{do: "GET", path: s.path + "?fieldSelector=metadata.name!%3Da"},
		{do: "GET", path: s.path + "?fieldSelector=spec.none%3Da", codeAlone: true},
		{do: "GET", path: s.path + "?resourceVersion=0"},
		{do: "GET", path: s.path + "?resourceVersion={version " + a + "}&resourceVersionMatch=NotOlderThan"},
		{do: "GET", path: s.path + "?resourceVersionMatch=Exact"},
		{do: "GET", path: s.path + "?resourceVersion=0&resourceVersionMatch=Exact"},
		{do: "GET", path: s.path + "?resourceVersion=x", codeAlone: true},
		{do: "GET", path: s.path + "?limit=x", codeAlone: true},
		{do: "GET", path: s.path + "?sendInitialEvents=true", codeAlone: true},
		{do: "GET", path: s.path + "?watch=1&sendInitialEvents=true", codeAlone: true},
		{do: "GET", path: s.path + "?watch=1&resourceVersionMatch=NotOlderThan", codeAlone: true},

		{do: "POST", path: s.path, body: s.object(`"name":"b","labels":{"put":"1"}`, s.content)},
		{do: "POST", path: s.path, body: s.object(`"name":"c","labels":{"put":"1"}`, s.content)},
		{do: "POST", path: s.path, body: s.object(`"name":"d"`, s.content)},
		{do: "GET", path: s.path + "?limit=2&labelSelector=put"},
		{do: "GET", path: s.path + "?limit=2&labelSelector=put&continue={continue}"},
		{do: "GET", path: s.path + "?limit=2&fieldSelector=metadata.name!%3Da"},
		{do: "DELETE", path: s.path + "/d"},
		{do: "GET", path: s.path + "?limit=1"},
		{do: "GET", path: s.path + "?limit=1&resourceVersion=0"},
		{do: "DELETE", path: s.path + "/c"},
		{do: "GET", path: s.path + "?limit=10&continue=x", codeAlone: true},

		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"finalizers":["example.com/keep","example.com/more"]}}`},
		{do: "DELETE", path: a, body: `{"preconditions":{"uid":"11111111-2222-3333-4444-555555555555"}}`},
		{do: "DELETE", path: a, body: `{"preconditions":{"resourceVersion":"1"}}`},
		{do: "DELETE", path: a, body: `{"propagationPolicy":"Sometimes"}`, codeAlone: true},
		{do: "DELETE", path: a + "?dryRun=All"},
		{do: "GET", path: a},
		{do: "DELETE", path: a, body: `{"preconditions":{"uid":"{uid ` + a + `}"}}`},
		{do: "DELETE", path: a},
		{do: "POST", path: s.path, body: named("a")},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"finalizers":["example.com/keep","example.com/new"]}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"deletionTimestamp":null}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"finalizers":["example.com/keep"]}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"finalizers":null}}`},
		{do: "GET", path: a},

		{do: "POST", path: s.path, body: named("a")},
		{do: "DELETE", path: a, body: `{"propagationPolicy":"Foreground"}`},
		{do: "GET", path: a},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"finalizers":[]}}`},
		{do: "POST", path: s.path, body: named("a")},
		{do: "DELETE", path: a, body: `{"propagationPolicy":"Orphan"}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"finalizers":[]}}`},
		{do: "POST", path: s.path, body: named("a")},
		{do: "DELETE", path: a, body: `{"orphanDependents":false}`},
		{do: "DELETE", path: s.path + "?labelSelector=put"},
		{do: "GET", path: s.path},
		{do: "POST", path: s.path + "/a", body: named("a"), codeAlone: true},
		{do: "PUT", path: s.path, body: named("a"), codeAlone: true},
		{do: "GET", path: s.path + "/a/nothing", codeAlone: true},
	}
	if s.versioned {
		steps = append(steps, step{do: "POST", path: s.path, body: named("v")}, step{do: "PUT", path: s.path + "/v", body: named("v")}, step{do: "DELETE", path: s.path + "/v"})
	}
	if s.namespaced {
		elsewhere := strings.Replace(s.path, "/compare/", "/nowhere/", 1)
		steps = append(steps,
			step{do: "POST", path: elsewhere, body: named("a")},
			step{do: "GET", path: elsewhere},
			step{do: "POST", path: s.path, body: s.object(`"name":"a","namespace":"other"`, s.content)},
		)
	}
	return append(steps, step{do: "DELETE", path: s.path})
}

// applied is what server-side apply is asked for. The owners of fields are compared by
// what they refuse.
func (s sample) applied(first, second string) []step {
	a := s.path + "/applied"
	body := func(content string) string { return s.object(`"name":"applied"`, content) }
	return []step{
		{do: "PATCH", path: a, media: applyPatch, body: body(first), codeAlone: true}, // no manager
		{do: "PATCH", path: a + "?fieldManager=one", media: applyPatch, body: body(first)},
		{do: "PATCH", path: a + "?fieldManager=one", media: applyPatch, body: body(first)},
		{do: "PATCH", path: a + "?fieldManager=two", media: applyPatch, body: body(second), codeAlone: true},
		{do: "PATCH", path: a + "?fieldManager=two&force=true", media: applyPatch, body: body(second)},
		{do: "PATCH", path: a + "?fieldManager=one", media: applyPatch, body: body(first), codeAlone: true},
		{do: "PATCH", path: a + "?fieldManager=one&force=true", media: applyPatch, body: body(first)},
		{do: "PATCH", path: a + "?fieldManager=three", media: mergePatch, body: `{"metadata":{"labels":{"three":"3"}}}`},
		{do: "PATCH", path: a + "?fieldManager=one&force=true", media: applyPatch, body: s.object(`"name":"applied","labels":{"one":"1"}`, first)},
		{do: "PATCH", path: a + "?fieldManager=one", media: applyPatch, body: body(first)},
		{do: "PATCH", path: a + "?fieldManager=one", media: applyPatch, body: s.object(`"name":"applied","labels":{"three":"4"}`, first), codeAlone: true},
		{do: "PATCH", path: a + "?fieldManager=one&dryRun=All", media: applyPatch, body: s.object(`"name":"applied","labels":{"dry":"4"}`, first)},
		{do: "PATCH", path: a + "?fieldManager=one", media: applyPatch, body: s.object(`"name":"other"`, first), codeAlone: true},
		{do: "PATCH", path: a + "?fieldManager=one", media: applyPatch, body: `no: [yaml`, codeAlone: true},
		{do: "PATCH", path: s.path + "/none?fieldManager=one", media: applyPatch, body: s.object(`"name":"none","uid":"11111111-2222-3333-4444-555555555555"`, first)},
		{do: "GET", path: a},
		{do: "DELETE", path: a},
	}
}

const namespace = "/api/v1/namespaces/compare"

var (
	configMaps = sample{
		name: "configmaps", apiVersion: "v1", kind: "ConfigMap", path: namespace + "/configmaps", namespaced: true,
		content: `"data":{"a":"1"}`, change: `{"data":{"b":"2"}}`, wrong: `"data":{"a":1}`,
	}
	secrets = sample{
		name: "secrets", apiVersion: "v1", kind: "Secret", path: namespace + "/secrets", namespaced: true,
		content: `"type":"Opaque","data":{"a":"MQ=="}`, change: `{"data":{"b":"Mg=="}}`, wrong: `"data":{"a":"no base64!"}`,
	}
	leases = sample{
		name: "leases", apiVersion: "coordination.k8s.io/v1", kind: "Lease", path: "/apis/coordination.k8s.io/v1/namespaces/compare/leases", namespaced: true,
		content: `"spec":{"holderIdentity":"x","leaseDurationSeconds":15}`, change: `{"spec":{"leaseTransitions":2}}`, wrong: `"spec":{"leaseDurationSeconds":"x"}`, versioned: true,
	}
	classes = sample{
		name: "storageclasses", apiVersion: "storage.k8s.io/v1", kind: "StorageClass", path: "/apis/storage.k8s.io/v1/storageclasses",
		content: `"provisioner":"x","reclaimPolicy":"Delete","volumeBindingMode":"Immediate"`, change: `{"allowVolumeExpansion":true}`, wrong: `"provisioner":1`,
	}
	widgets = sample{
		name: "widgets", apiVersion: "example.com/v1", kind: "Widget", path: "/apis/example.com/v1/namespaces/compare/widgets", namespaced: true, custom: true,
		content: `"spec":{"size":1}`, change: `{"spec":{"size":2}}`, wrong: `"spec":{"size":"x"}`, versioned: true,
	}
	gadgets = sample{
		name: "gadgets", apiVersion: "example.com/v1", kind: "Gadget", path: "/apis/example.com/v1/gadgets", custom: true,
		content: `"spec":{"size":1}`, change: `{"spec":{"size":2}}`, wrong: `"spec":{"size":"x"}`, versioned: true,
	}
	deployments = sample{
		name: "deployments", apiVersion: "apps/v1", kind: "Deployment", path: "/apis/apps/v1/namespaces/compare/deployments", namespaced: true,
		content: deployment, change: `{"spec":{"replicas":3}}`, wrong: `"spec":{"replicas":"x"}`,
	}
)

const podSpec = `{"containers":[{"name":"c","image":"i","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}`

const deployment = `"spec":{"replicas":1,"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":` + podSpec + `},` +
	`"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}},"revisionHistoryLimit":10,"progressDeadlineSeconds":600}`

func sequences() []sequence {
	all := []sequence{{"namespaces", []step{
		{do: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"compare"}}`},
		{do: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"compare"}}`},
		{do: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"not.a.label"}}`},
		{do: "GET", path: "/api/v1/namespaces/compare"},
		{do: "GET", path: "/api/v1/namespaces/none"},
		{do: "PATCH", path: "/api/v1/namespaces/compare", media: mergePatch, body: `{"metadata":{"labels":{"x":"y"}}}`},
		{do: "GET", path: "/api/v1/namespaces?labelSelector=x"},
		{do: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"ends"}}`},
		{do: "DELETE", path: "/api/v1/namespaces/ends"},
		{do: "GET", path: "/api/v1/namespaces/ends"},
		{do: "POST", path: "/api/v1/namespaces/ends/configmaps", body: `{"metadata":{"name":"late"}}`},
		{do: "DELETE", path: "/api/v1/namespaces", codeAlone: true},
	}}}
	for _, s := range []sample{configMaps, secrets, leases, classes, widgets, gadgets, deployments} {
		all = append(all, sequence{s.name, s.common()})
	}
	all = append(all,
		sequence{"apply to configmaps", configMaps.applied(`"data":{"a":"1","b":"2"}`, `"data":{"a":"3"}`)},
		sequence{"apply to widgets", widgets.applied(`"spec":{"size":1,"names":["x"],"ports":[{"port":1},{"port":2}]}`, `"spec":{"size":2,"names":["y"],"ports":[{"port":2,"name":"z"}]}`)},
		sequence{"apply to deployments", deployments.applied(deployment, `"spec":{"replicas":5,"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"j"}]}}}`)},
		sequence{"status of widgets", statusSteps()},
		sequence{"status of deployments", deploymentSteps()},
		sequence{"schema", schemaSteps()},
		sequence{"watch", watchSteps()},
		sequence{"rules", ruleSteps()},
		sequence{"discovery", []step{
			{do: "GET", path: "/apis/apps/v1"},
			{do: "GET", path: "/apis/batch/v1"},
			{do: "GET", path: "/apis/example.com"},
			{do: "GET", path: "/apis/example.com/v1"},
			{do: "GET", path: "/apis/apps"},
			{do: "GET", path: "/apis/none/v1", codeAlone: true},
			{do: "GET", path: "/apis/apps/v7", codeAlone: true},
			{do: "GET", path: "/apis/apps/v1/nothings", codeAlone: true},
			{do: "GET", path: "/nothing", codeAlone: true},
			{do: "GET", path: "/readyz"},
		}},
	)
	return all
}

func statusSteps() []step {
	w := widgets
	a, status := w.path+"/s", w.path+"/s/status"
	return []step{
		{do: "POST", path: w.path, body: w.object(`"name":"s"`, `"spec":{"size":1,"replicas":2},"status":{"ready":true}`)},
		{do: "GET", path: status},
		{do: "PATCH", path: a, media: mergePatch, body: `{"status":{"ready":true}}`},
		{do: "PATCH", path: status, media: mergePatch, body: `{"status":{"ready":true,"replicas":1},"spec":{"size":5},"metadata":{"labels":{"no":"no"}}}`},
		{do: "PATCH", path: status, media: mergePatch, body: `{"status":{"ready":true,"replicas":1}}`},
		{do: "PATCH", path: status, media: mergePatch, body: `{"status":{"phase":"Sideways"}}`, codeAlone: true},
		{do: "PATCH", path: status, media: mergePatch, body: `{"status":{"unknown":1}}`},
		{do: "PATCH", path: status, media: jsonPatch, body: `[{"op":"replace","path":"/status/replicas","value":3}]`},
		{do: "PUT", path: status, body: w.object(`"name":"s","resourceVersion":"{version `+a+`}"`, `"spec":{"size":1},"status":{"ready":false}`)},
		{do: "PUT", path: status, body: w.object(`"name":"s","resourceVersion":"1"`, `"spec":{"size":1},"status":{"ready":false}`)},
		{do: "PUT", path: status, body: w.object(`"name":"s"`, `"spec":{"size":1},"status":{"ready":false}`)},
		{do: "PUT", path: a, body: w.object(`"name":"s","resourceVersion":"{version `+a+`}"`, `"spec":{"size":3,"replicas":2},"status":{"ready":true}`)},
		{do: "PATCH", path: status + "?fieldManager=one", media: applyPatch, body: w.object(`"name":"s"`, `"status":{"ready":true,"phase":"Up"}`), codeAlone: true},
		{do: "PATCH", path: status + "?fieldManager=one&force=true", media: applyPatch, body: w.object(`"name":"s"`, `"status":{"ready":true,"phase":"Up"}`)},
		{do: "PATCH", path: w.path + "/none/status?fieldManager=one", media: applyPatch, body: w.object(`"name":"none"`, `"status":{"ready":true}`), codeAlone: true},
		{do: "PATCH", path: w.path + "/none/status", media: mergePatch, body: `{"status":{"ready":true}}`},
		{do: "DELETE", path: status, codeAlone: true},
		{do: "GET", path: a + "/scale"},
		{do: "PATCH", path: a + "/scale", media: mergePatch, body: `{"spec":{"replicas":7}}`},
		{do: "GET", path: a},
		{do: "PUT", path: a + "/scale", body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"s","namespace":"compare"},"spec":{"replicas":4}}`},
		{do: "PUT", path: a + "/scale", body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"s","namespace":"compare","resourceVersion":"1"},"spec":{"replicas":4}}`, codeAlone: true},
		{do: "PATCH", path: a + "/scale", media: mergePatch, body: `{"spec":{"replicas":-1}}`, codeAlone: true},
		{do: "PATCH", path: a + "/scale", media: strategicPatch, body: `{"spec":{"replicas":1}}`, codeAlone: true},
		{do: "PATCH", path: a + "/scale", media: "application/unknown", body: `{"spec":{"replicas":1}}`, codeAlone: true},
		{do: "PATCH", path: w.path + "/none/scale", media: "application/unknown", body: `{}`, codeAlone: true},
		{do: "PATCH", path: status, media: mergePatch, body: `{"status":{"selector":"app=a","replicas":4}}`},
		{do: "GET", path: a + "/scale"},
		{do: "GET", path: w.path + "/none/scale"},
		{do: "DELETE", path: a},
		// Without the subresource, the status is like all else.
		{do: "POST", path: gadgets.path, body: gadgets.object(`"name":"g"`, `"spec":{"size":1},"status":{"phase":"x"}`)},
		{do: "PATCH", path: gadgets.path + "/g", media: mergePatch, body: `{"status":{"phase":"y"}}`},
		{do: "PATCH", path: gadgets.path + "/g/status", media: mergePatch, body: `{"status":{"phase":"z"}}`, codeAlone: true},
		{do: "GET", path: gadgets.path + "/g/scale", codeAlone: true},
		{do: "DELETE", path: gadgets.path + "/g"},
	}
}

func deploymentSteps() []step {
	d := deployments
	a, status := d.path+"/d", d.path+"/d/status"
	return []step{
		{do: "POST", path: d.path, body: d.object(`"name":"d"`, d.content+`,"status":{"replicas":9}`)},
		{do: "PATCH", path: status, media: mergePatch, body: `{"status":{"replicas":1,"observedGeneration":1,"readyReplicas":1},"spec":{"replicas":8}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"metadata":{"annotations":{"a":"b"}}}`},
		{do: "PATCH", path: a, media: strategicPatch, body: `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"k"}]}}}}`},
		{do: "PATCH", path: a, media: strategicPatch, body: `{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"k","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}]}}}}`},
		{do: "PATCH", path: a, media: strategicPatch, body: `{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"d"}]}}}}`},
		{do: "PATCH", path: a, media: mergePatch, body: `{"spec":{"selector":{"matchLabels":{"app":"b"}},"template":{"metadata":{"labels":{"app":"b"}}}}}`, codeAlone: true},
		{do: "GET", path: a + "/scale"},
		{do: "PATCH", path: a + "/scale", media: mergePatch, body: `{"spec":{"replicas":5}}`},
		{do: "PATCH", path: a + "/scale", media: strategicPatch, body: `{"spec":{"replicas":6}}`},
		{do: "PATCH", path: a + "/scale", media: "application/unknown", body: `{"spec":{"replicas":1}}`, codeAlone: true},
		{do: "PATCH", path: a + "/scale?force=true", media: mergePatch, body: `{"spec":{"replicas":1}}`, codeAlone: true},
		{do: "PUT", path: a + "/scale", body: `{"metadata":{"name":"d","namespace":"compare"},"spec":{"replicas":6}}`},
		{do: "GET", path: a},
		{do: "PATCH", path: status, media: strategicPatch, body: `{"status":{"conditions":[{"type":"Available","status":"True"}]}}`},
		{do: "PATCH", path: status, media: strategicPatch, body: `{"status":{"conditions":[{"type":"Progressing","status":"True"}]}}`},
		{do: "PATCH", path: status, media: strategicPatch, body: `{"status":{"conditions":[{"type":"Available","status":"False"}]}}`},
		{do: "DELETE", path: a, body: `{"propagationPolicy":"Background"}`},
	}
}

func schemaSteps() []step {
	w := widgets
	var steps []step
	for i, spec := range []string{
		`{"size":1}`,
		`{"size":1,"color":"green","nested":{}}`,
		`{"size":1,"free":{"any":{"thing":[1,"x",null]}}}`,
		`{"size":1,"unknown":true,"nested":{"unknown":1,"deep":"d"}}`,
		`{"size":1,"ports":[{"port":1},{"port":2,"name":"n","unknown":1}]}`,
		`{"size":1,"note":null}`,
		`{"size":1,"color":null}`,
		`{"size":1,"names":["a","b"]}`,
		`{"size":100}`,
	} {
		steps = append(steps, step{do: "POST", path: w.path, body: w.object(fmt.Sprintf(`"name":"good-%d"`, i), `"spec":`+spec)})
	}
	for i, spec := range []string{
		`{}`, `{"size":0}`, `{"size":101}`, `{"size":1.5}`, `{"size":"1"}`, `{"size":13}`, `{"size":null}`,
		`{"size":1,"color":"pink"}`, `{"size":1,"color":1}`, `{"size":1,"names":["a","a"]}`, `{"size":1,"names":"a"}`,
		`{"size":1,"ports":[{"port":1},{"port":1}]}`, `{"size":1,"ports":[{"name":"x"}]}`, `{"size":1,"note":"too long"}`,
		`{"size":1,"free":"x"}`, `{"size":1,"nested":[]}`, `7`, `null`,
	} {
		steps = append(steps, step{do: "POST", path: w.path, body: w.object(fmt.Sprintf(`"name":"bad-%d"`, i), `"spec":`+spec), codeAlone: spec == "7"})
	}
	return append(steps,
		step{do: "POST", path: w.path, body: `{"kind":"Widget","metadata":{"name":"x"},"spec":{"size":1}}`, codeAlone: true},
		step{do: "POST", path: w.path, body: `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"x"},"spec":{"size":1}}`, codeAlone: true},
		step{do: "POST", path: w.path, body: `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"x"},"spec":{"size":1}}`, codeAlone: true},
		step{do: "PATCH", path: w.path + "/good-0", media: mergePatch, body: `{"spec":{"kept":"x"}}`},
		step{do: "PATCH", path: w.path + "/good-0", media: mergePatch, body: `{"spec":{"kept":"y"}}`},
		step{do: "PATCH", path: w.path + "/good-0", media: mergePatch, body: `{"spec":{"color":null}}`},
		step{do: "PATCH", path: w.path + "/good-0", media: mergePatch, body: `{"spec":{"size":null}}`},
		step{do: "GET", path: w.path + "?fieldSelector=spec.color%3Dgreen"},
		step{do: "GET", path: w.path + "?fieldSelector=spec.size%3D1", codeAlone: true},
		step{do: "DELETE", path: w.path},
	)
}

func watchSteps() []step {
	c := configMaps
	watch := c.path + "?watch=1&timeoutSeconds=8"
	put := func(name, label string) step {
		return step{do: "POST", path: c.path, body: c.object(fmt.Sprintf(`"name":%q,"labels":{"x":%q}`, name, label), c.content)}
	}
	return []step{
		put("w1", "1"),
		put("w2", "2"),
		{do: "PATCH", path: c.path + "/w1", media: mergePatch, body: `{"data":{"z":"1"}}`},
		{do: "PATCH", path: c.path + "/w1", media: mergePatch, body: `{"metadata":{"labels":{"x":"2"}}}`},
		{do: "GET", path: watch},
		{do: "GET", path: watch + "&resourceVersion=0"},
		{do: "GET", path: watch + "&allowWatchBookmarks=true&labelSelector=x"},
		{do: "GET", path: c.path + "/w1?watch=1&timeoutSeconds=8"},
		{do: "GET", path: c.path + "/w1?watch=1&timeoutSeconds=8&fieldSelector=metadata.name%3Dw2"},
		{do: "GET", path: watch + "&labelSelector=x%3D2&resourceVersion={version " + c.path + "/w2}"},
		{do: "GET", path: watch + "&labelSelector=x%3D1&resourceVersion={version " + c.path + "/w2}"},
		{do: "GET", path: watch + "&fieldSelector=metadata.name%3Dw1&resourceVersion={version " + c.path + "/w2}"},
		{do: "GET", path: watch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=x"},
		{do: "GET", path: watch + "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={version " + c.path + "/w2}"},
		{do: "GET", path: watch + "&partial=1&fieldSelector=metadata.name%3Dw1&resourceVersion={version " + c.path + "/w2}"},
		{do: "DELETE", path: c.path + "/w1"},
		{do: "GET", path: watch + "&resourceVersion={version " + c.path + "/w2}"},
		{do: "GET", path: c.path + "/w2?resourceVersion=0"},
		{do: "GET", path: c.path + "?resourceVersion={version " + c.path + "/w2}&resourceVersionMatch=Exact&limit=5"},
		{do: "DELETE", path: c.path + "/w2"},
	}
}

func ruleSteps() []step {
	c, s := configMaps, secrets
	jobs := "/apis/batch/v1/namespaces/compare/jobs"
	cidrs := "/apis/networking.k8s.io/v1/servicecidrs"
	return []step{
		{do: "POST", path: c.path, body: c.object(`"name":"fixed"`, `"immutable":true,"data":{"a":"1"}`)},
		{do: "PATCH", path: c.path + "/fixed", media: mergePatch, body: `{"data":{"a":"2"}}`},
		{do: "PATCH", path: c.path + "/fixed", media: mergePatch, body: `{"metadata":{"labels":{"a":"2"}}}`},
		{do: "DELETE", path: c.path + "/fixed"},
		{do: "POST", path: s.path, body: s.object(`"name":"typed"`, s.content)},
		{do: "PATCH", path: s.path + "/typed", media: mergePatch, body: `{"type":"other"}`, codeAlone: true},
		{do: "DELETE", path: s.path + "/typed"},
		{do: "POST", path: s.path, body: s.object(`"name":"text"`, `"type":"Opaque","data":{"a":"MA==","b":"MA=="},"stringData":{"a":"1"}`)},
		{do: "PATCH", path: s.path + "/text", media: mergePatch, body: `{"stringData":{"c":"2"}}`},
		{do: "DELETE", path: s.path + "/text"},
		{do: "PATCH", path: "/api/v1/namespaces/compare", media: mergePatch, body: `{"metadata":{"labels":null}}`},
		{do: "POST", path: cidrs, body: `{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"c","labels":{"a":"1"}},"spec":{"cidrs":["10.97.0.0/24"]}}`},
		{do: "PATCH", path: cidrs + "/c/status", media: mergePatch, body: `{"metadata":{"labels":{"a":"2"}},"status":{"conditions":[{"type":"Ready","status":"True","reason":"x","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`},
		{do: "DELETE", path: cidrs + "/c"},
		{do: "POST", path: jobs, body: `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"suspend":true,"template":{"spec":` + strings.Replace(podSpec, `"Always","term`, `"Never","term`, 1) + `}}}`, codeAlone: true},
		{do: "PATCH", path: jobs + "/j", media: mergePatch, body: `{"spec":{"completionMode":"Indexed"}}`, codeAlone: true},
		{do: "DELETE", path: jobs + "/j", codeAlone: true},
		{do: "GET", path: jobs + "/j", codeAlone: true}, // which orphans its dependents
	}
}
