// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/reconkernel/reconcile/explore/kubesim/manager"
)

func TestStartWithoutServer(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "manager: Start needs a configuration of kubesim.Server.Config") {
			t.Errorf("Start panicked with %s", got)
		}
	}()
	manager.Start(ctrl.Options{}, func(ctrl.Manager) error { return nil })(nil, &rest.Config{Host: "http://localhost"})
}
