// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package certmagic

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/found/internal/foundtest"
)

// plays numbers the domains. certmagic keeps the back-off of a domain in a variable of its
// package, which the next plan would see.
var plays atomic.Int64

// A world is a storage, and a certificate authority whose certificates are valid for a day.
type world struct {
	domain    string
	files     map[string][]byte
	locks     map[string]time.Time // when the lease ends
	authority crypto.Signer
	serials   int64
	cache     *certmagic.Cache // of the last process
}

func newWorld() *world {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return &world{
		domain: fmt.Sprintf("www%d.example.org", plays.Add(1)),
		files:  map[string][]byte{}, locks: map[string]time.Time{}, authority: authority,
	}
}

// hasCertificate reports whether a client of the server would get a valid certificate.
func (w *world) hasCertificate() bool {
	return w.cache != nil && slices.ContainsFunc(w.cache.AllMatchingCertificates(w.domain), func(c certmagic.Certificate) bool {
		return time.Now().Before(c.Leaf.NotAfter)
	})
}

func (w *world) String() string {
	if w.hasCertificate() {
		return "a valid certificate"
	}
	return "no valid certificate"
}

// A storage is how a process reaches the world. A journal names a file by its extension.
type storage struct {
	*explore.Process
	*world
}

func operation(verb, key string) string {
	if ext := path.Ext(key); strings.HasPrefix(key, "certificates/") && ext != "" {
		return verb + " " + ext
	}
	return verb + " a file to test the storage"
}

func (s storage) Store(ctx context.Context, key string, value []byte) error {
	return s.Do(ctx, operation("store", key), func() error { s.files[key] = slices.Clone(value); return nil })
}

func (s storage) Delete(ctx context.Context, key string) error {
	return s.Do(ctx, operation("delete", key), func() error { delete(s.files, key); return nil })
}

func (s storage) Load(ctx context.Context, key string) ([]byte, error) {
	return explore.Read(ctx, s.Process, operation("load", key), func() ([]byte, error) {
		value, ok := s.files[key]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return slices.Clone(value), nil
	})
}

func (s storage) Exists(ctx context.Context, key string) bool {
	exists, _ := explore.Read(ctx, s.Process, operation("exists", key), func() (bool, error) {
		_, ok := s.files[key]
		return ok, nil
	})
	return exists // false after an error, as the interface demands
}

func (s storage) List(ctx context.Context, prefix string, _ bool) ([]string, error) {
	return explore.Read(ctx, s.Process, "list", func() ([]string, error) {
		keys := slices.Sorted(maps.Keys(s.files))
		return slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, prefix) }), nil
	})
}

func (s storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	return explore.Read(ctx, s.Process, operation("stat", key), func() (certmagic.KeyInfo, error) {
		value, ok := s.files[key]
		if !ok {
			return certmagic.KeyInfo{}, fs.ErrNotExist
		}
		return certmagic.KeyInfo{Key: key, Size: int64(len(value)), IsTerminal: true}, nil
	})
}

// Lock waits for a lock, whose lease ends after five minutes.
func (s storage) Lock(ctx context.Context, name string) error {
	for {
		locked := false
		err := s.Do(ctx, "lock", func() error {
			if time.Now().After(s.locks[name]) {
				s.locks[name], locked = time.Now().Add(5*time.Minute), true
			}
			return nil
		})
		if err != nil || locked {
			return err
		}
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s storage) Unlock(ctx context.Context, name string) error {
	return s.Do(ctx, "unlock", func() error { delete(s.locks, name); return nil })
}

type issuer struct{ storage }

func (issuer) IssuerKey() string { return "authority" }

func (i issuer) Issue(ctx context.Context, request *x509.CertificateRequest) (issued *certmagic.IssuedCertificate, err error) {
	err = i.Do(ctx, "issue", func() error {
		i.serials++
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(i.serials), DNSNames: request.DNSNames,
			NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, request.PublicKey, i.authority)
		issued = &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
		return err
	})
	if err != nil {
		return nil, err
	}
	return issued, nil
}

// scenario keeps one certificate for 36 hours. It is renewed after 16 hours and after 32.
// If again is set, the program calls ManageAsync each minute until it has a certificate.
func scenario(again bool) explore.Scenario[*world] {
	return explore.Scenario[*world]{
		World: newWorld,
		Start: func(proc *explore.Process, w *world) {
			proc.Go(func(ctx context.Context) error {
				var config *certmagic.Config
				cache := certmagic.NewCache(certmagic.CacheOptions{
					GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
					Logger:           zap.NewNop(),
				})
				defer cache.Stop()
				w.cache = cache
				s := storage{proc, w}
				config = certmagic.New(cache, certmagic.Config{
					Storage: s, Issuers: []certmagic.Issuer{issuer{s}}, Logger: zap.NewNop(),
					OCSP: certmagic.OCSPConfig{DisableStapling: true}, DisableARI: true,
				})
				for {
					if err := config.ManageAsync(ctx, []string{w.domain}); err != nil {
						return err
					}
					var wait <-chan time.Time
					if again && !w.hasCertificate() {
						wait = time.After(time.Minute)
					}
					select {
					case <-wait:
					case <-ctx.Done():
						return nil
					}
				}
			})
		},
		Steps: func(env *explore.Environment, _ *world) {
			env.Advance(20 * time.Hour)
			env.Advance(16 * time.Hour)
		},
		State:    (*world).String,
		Without:  []explore.Fault{explore.Stale, explore.StaleWatch}, // one server has the files
		Within:   6 * time.Hour,
		Plans:    600,
		Parallel: 1, // the queue of jobs is a variable of the package
	}
}

// TestStart finds that ManageAsync gives up after one read of the storage that fails.
func TestStart(t *testing.T) {
	foundtest.Find(t, scenario(false), "call load .key #1: fails")
}

// TestCrash finds that a process that dies between two writes leaves a certificate with the
// key of the next one, which is never loaded nor renewed again.
func TestCrash(t *testing.T) {
	s := scenario(true)
	s.Without = append(s.Without, explore.Stops) // finds the same, if the stop comes between the writes
	foundtest.Find(t, s, "call store .key #2: dies after")
}

// TestRollback finds that one failed write in the renewal at a start deletes the
// certificate in use, and that the renewal tries for ever to read it.
func TestRollback(t *testing.T) {
	s := scenario(true)
	s.Steps = func(env *explore.Environment, _ *world) {
		env.Advance(16*time.Hour + 5*time.Minute) // the next check is in five minutes
		env.Redeploy()
		env.Advance(20 * time.Hour)
	}
	s.Without = append(s.Without, explore.DiesBefore, explore.DiesAfter, explore.Stops) // see TestCrash
	foundtest.Find(t, s, "call store .crt #2: fails")
}
