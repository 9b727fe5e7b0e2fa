// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

// kubesim calls no webhooks.

package kube_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// validate answers an admission review: a ConfigMap needs the key "spec".
func validate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	var config corev1.ConfigMap
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8<<20)).Decode(&review)
	if err == nil && review.Request == nil {
		err = errors.New("no request")
	}
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, &config)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: config.Data["spec"] != ""}
	if !review.Response.Allowed {
		review.Response.Result = &metav1.Status{Message: "data.spec is missing"}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server may be gone
}

// serveTLS returns a Runner that serves h with the certificate in two files, which
// cert-manager writes anew before it expires: they are read for each connection.
func serveTLS(l net.Listener, certFile, keyFile string, h http.Handler) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				cert, err := tls.LoadX509KeyPair(certFile, keyFile)
				return &cert, err
			},
		}}
		closed := make(chan error, 1)
		stop := context.AfterFunc(ctx, func() {
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			closed <- errors.Join(server.Shutdown(grace), server.Close())
		})
		err := server.ServeTLS(l, "", "")
		if stop() { // it ended by itself
			return err
		}
		return <-closed
	})
}

// TestWebhook has a real API server ask a webhook, over TLS: what it allows is there,
// what it refuses is refused in its words. Another certificate takes the place of the
// first while it runs.
func TestWebhook(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		admin := typed(t, s.Admin())
		certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ca := writeCertificate(t, certFile, keyFile)
		kubetest.Run(t, serveTLS(l, certFile, keyFile, http.HandlerFunc(validate)))

		url := "https://" + l.Addr().String()
		none := admissionregistrationv1.SideEffectClassNone
		hooks := admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		hook, err := hooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "specs.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
				ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := hooks.Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}()
		n := 0
		put := func(data map[string]string) error {
			n++
			cm := configMap(ns, fmt.Sprint("a", n))
			cm.Data = data
			_, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{})
			return err
		}
		refused := func() error { // the API server knows of a webhook a moment later
			if err := put(nil); err == nil || !strings.Contains(err.Error(), "data.spec is missing") {
				return fmt.Errorf("a ConfigMap without the key: %v", err) // which may be nil
			}
			return nil
		}
		kubetest.Eventually(t, refused)
		if err := put(map[string]string{"spec": "{}"}); err != nil {
			t.Error(err)
		}

		hook.Webhooks[0].ClientConfig.CABundle = writeCertificate(t, certFile, keyFile)
		if _, err := hooks.Update(t.Context(), hook, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		kubetest.Eventually(t, refused)
	})
}

// writeCertificate writes a certificate for 127.0.0.1, signed by itself, and returns
// what is to be trusted.
func writeCertificate(t *testing.T, certFile, keyFile string) (ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, data := range map[string][]byte{certFile: ca, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca
}
