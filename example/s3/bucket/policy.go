// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// samePolicy reports whether two policies say the same. Stores give a policy
// back in a form of their own: with other spaces, the order of fields and lists
// changed, a list of one as the one, and the principal "*" spelled out.
func samePolicy(a, b string) bool {
	if a == b || a == "" || b == "" {
		return a == b
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(canonical("", x), canonical("", y))
}

// canonical brings the value of a field of a policy into one form.
func canonical(field string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		if strings.HasSuffix(field, "Principal") && len(v) == 1 {
			if all, ok := v["AWS"]; ok && reflect.DeepEqual(canonical("AWS", all), "*") {
				return "*"
			}
		}
		for name, part := range v {
			v[name] = canonical(name, part)
		}
	case []any:
		texts := true
		for i := range v {
			v[i] = canonical(field, v[i])
			_, text := v[i].(string)
			texts = texts && text
		}
		if len(v) == 1 {
			return v[0]
		}
		if texts { // the order of statements may matter to a reader, that of texts does not
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		}
	}
	return value
}
