// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An authority issues the certificates of a server and of its users.
type authority struct {
	cert []byte // PEM
	own  *x509.Certificate
	key  crypto.Signer

	certFile              string
	serverCert, serverKey string // an RSA key: it signs tokens as well
	adminCert, adminKey   string
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	own := template("kubetest", nil)
	own.IsCA, own.BasicConstraintsValid = true, true
	own.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if own, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	a := &authority{
		own: own, key: key, cert: encode("CERTIFICATE", der),
		certFile:   file("ca.crt"),
		serverCert: file("server.crt"), serverKey: file("server.key"),
		adminCert: file("admin.crt"), adminKey: file("admin.key"),
	}
	serverKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	server := template("kubetest", nil)
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	adminCert, adminKey := a.client("admin", []string{"system:masters"})
	for name, text := range map[string][]byte{
		a.certFile:   a.cert,
		a.serverCert: a.issue(server, serverKey),
		a.serverKey:  encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(serverKey)),
		a.adminCert:  adminCert,
		a.adminKey:   adminKey,
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// client returns a certificate and a key, as PEM, of a user.
func (a *authority) client(user string, groups []string) (cert, pemKey []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // no randomness: nothing works
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err)
	}
	of := template(user, groups)
	of.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(of, key), encode("EC PRIVATE KEY", der)
}

func (a *authority) issue(cert *x509.Certificate, key crypto.Signer) []byte {
	der, err := x509.CreateCertificate(rand.Reader, cert, a.own, key.Public(), a.key)
	if err != nil {
		panic(err) // of a template made here
	}
	return encode("CERTIFICATE", der)
}

func template(name string, groups []string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
