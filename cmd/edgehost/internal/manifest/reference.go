package manifest

import (
	"fmt"
	"strings"
)

// Reference returns the table of all keys as Markdown: what each takes, its
// default and its bounds.
func Reference() string {
	var out, later strings.Builder
	out.WriteString("| key | takes | default | bounds | meaning |\n|---|---|---|---|---|\n")
	describeKeys(&out, &later, "", manifestKeys())
	describeKeys(&out, &later, "function.NAME.", functionKeys())
	describeKeys(&out, &later, "dependency.NAME.", dependencyKeys())
	describeKeys(&out, &later, "dependency.NAME.breaker.", breakerKeys())
	describeKeys(&out, &later, "dependency.NAME.retry.", retryKeys())
	describeKeys(&out, &later, "dev.", devKeys())
	return out.String() + "\nKnown and refused, because this version would not keep what they promise: " +
		strings.TrimSuffix(later.String(), ", ") + ".\n"
}

func describeKeys[T any](out, later *strings.Builder, prefix string, keys []key[T]) {
	for _, k := range keys {
		if k.later {
			fmt.Fprintf(later, "`%s%s`, ", prefix, k.name)
			continue
		}
		absent := "*required*"
		if !k.required {
			absent = code(k.absent)
		}
		bounds := k.bounds
		if bounds == "" {
			bounds = "–"
		}
		fmt.Fprintf(out, "| `%s%s` | %s | %s | %s | %s |\n", prefix, k.name, k.takes, absent, bounds, k.about)
	}
}

func code(text string) string {
	if text == "" || text == "none" {
		return "none"
	}
	return "`" + text + "`"
}
