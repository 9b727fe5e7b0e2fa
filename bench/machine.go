// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// machineInfo says where and what was measured.
type machineInfo struct {
	CPU      string            `json:"cpu,omitempty"`
	Procs    int               `json:"procs"`
	System   string            `json:"system"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"`
	Mode     string            `json:"mode"`
	Others   float64           `json:"others"` // part of the processors that others used meanwhile; -1 if unknown
	Seconds  float64           `json:"seconds"`
}

func thisMachine() *machineInfo {
	m := &machineInfo{
		Procs:    runtime.GOMAXPROCS(0),
		System:   runtime.GOOS + "/" + runtime.GOARCH,
		Go:       runtime.Version(),
		Versions: make(map[string]string),
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "k8s.io/client-go", "sigs.k8s.io/controller-runtime":
				m.Versions[dep.Path] = dep.Version
			}
		}
	}
	return m
}

// watchLoad begins to watch what others do on this machine. The function that
// it returns gives their part of the processors since then, or -1.
func watchLoad() func() float64 {
	began, own := time.Now(), processorTime()
	busy, ok := machineBusy()
	return func() float64 {
		now, ok2 := machineBusy()
		if !ok || !ok2 {
			return -1
		}
		others := (now - busy) - (processorTime() - own)
		return max(0, float64(others)/float64(time.Since(began))/float64(runtime.NumCPU()))
	}
}

// machineBusy returns the time that all processors of a Linux machine worked.
func machineBusy() (time.Duration, bool) {
	const tick = 10 * time.Millisecond // USER_HZ, the same everywhere
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal …
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, false
	}
	var sum time.Duration
	for i, field := range fields[1:9] {
		if i == 3 || i == 4 {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, false
		}
		sum += time.Duration(n) * tick
	}
	return sum, true
}
