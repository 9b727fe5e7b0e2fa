// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

// names makes n distinct names of assets. They share one backing string, so
// that the collector sees one object, whatever the number.
func names(n int) []string {
	const width = len("team-00/asset-00000000")
	buf := make([]byte, 0, n*width)
	for i := range n {
		buf = append(buf, "team-"...)
		buf = append(buf, byte('0'+i/10%10), byte('0'+i%10))
		buf = append(buf, "/asset-"...)
		for p := 10_000_000; p > 0; p /= 10 {
			buf = append(buf, byte('0'+i/p%10))
		}
	}
	all := string(buf)
	list := make([]string, n)
	for i := range list {
		list[i] = all[i*width : (i+1)*width]
	}
	return list
}

// index is the inverse of names.
func index(name string) int {
	i := 0
	for _, c := range []byte(name[len(name)-8:]) {
		i = i*10 + int(c-'0')
	}
	return i
}

func pairs(n int) []pair {
	list := make([]pair, n)
	for i, name := range names(n) {
		list[i] = pair{name[:7], name[8:]}
	}
	return list
}
