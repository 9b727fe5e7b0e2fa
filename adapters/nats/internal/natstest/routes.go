// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

// Routes returns the proxy through which the other servers of a cluster reach
// this one, or nil outside of a cluster. Connections that this server has opened
// to the others do not pass it.
func (s *Server) Routes() *Proxy { return s.routes }
