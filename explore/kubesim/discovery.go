// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers requests that are about no kind.
func (s *Server) discover(q *request, path string) answer {
	if q.method != http.MethodGet {
		return answer{http.StatusNotFound, []byte("404 page not found\n")}
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	core := schema.GroupVersion{Version: "v1"}
	var out any
	switch {
	case path == "/version":
		out = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2+kubesim", Platform: "kubesim"}
	case path == "/healthz" || path == "/readyz" || path == "/livez":
		return answer{http.StatusOK, []byte("ok")}
	case path == "/api":
		out = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}}
	case path == "/api/v1":
		out = s.resources(core)
	case path == "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		names := map[string]bool{}
		for gv := range s.groups {
			names[gv.Group] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if name != "" {
				list.Groups = append(list.Groups, s.group(name))
			}
		}
		out = list
	case len(parts) == 2 && parts[0] == "apis" && len(s.group(parts[1]).Versions) > 0:
		g := s.group(parts[1])
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		out = g
	case len(parts) == 3 && parts[0] == "apis" && s.groups[schema.GroupVersion{Group: parts[1], Version: parts[2]}] != nil:
		out = s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case len(parts) > 2 && parts[0] == "apis" && len(s.group(parts[1]).Versions) > 0, len(parts) > 1 && parts[0] == "api":
		return failed(errNoResource)
	default:
		return answer{http.StatusNotFound, []byte("404 page not found\n")}
	}
	return answer{http.StatusOK, encode(out)}
}

func (s *Server) group(name string) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for gv := range s.groups {
		if gv.Group == name {
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
		}
	}
	slices.SortFunc(g.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
		return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
	})
	if len(g.Versions) > 0 {
		g.PreferredVersion = g.Versions[0]
	}
	return g
}

// resources lists those of a version.
func (s *Server) resources(gv schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, name := range slices.Sorted(maps.Keys(s.groups[gv])) {
		k := s.groups[gv][name]
		verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
		if k.builtIn && k.Kind == "Namespace" {
			verbs = slices.Delete(verbs, 2, 3)
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.Resource, SingularName: k.singular, Namespaced: !k.Cluster, Kind: k.Kind,
			Verbs: verbs, ShortNames: k.ShortNames, Categories: k.Categories,
		})
		if k.Scale != nil {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Resource + "/scale", Namespaced: !k.Cluster, Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
		if k.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Resource + "/status", Namespaced: !k.Cluster, Kind: k.Kind, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	return list
}
