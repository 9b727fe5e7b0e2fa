// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package program

// News returns a function for a loop that reads a file of specs repeatedly. It calls
// tell with the news: how many specs have changed, if any have or the file was bad
// before; or what is wrong with the file, once. It is for one goroutine at a time.
func News(tell func(changed int, err error)) func(changed int, err error) {
	problem := "" // with the file when it was looked at last
	return func(changed int, err error) {
		before := problem
		problem = ""
		if err != nil {
			problem = err.Error()
		}
		if problem != before || changed > 0 {
			tell(changed, err)
		}
	}
}
