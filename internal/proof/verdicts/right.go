package verdicts

import (
	_ "embed"
	"slices"
	"strings"
)

// rightRows are rows whose verdict by the bare SDK has been right: they must stay
// so. The list only grows.
//
//go:embed testdata/right.txt
var rightRows string

// RightBefore are the IDs in the list.
func RightBefore() []string { return strings.Split(strings.TrimSpace(rightRows), "\n") }

// RightNow adds the rows that are right now to the list and returns it, sorted.
func RightNow(results []Result) []string {
	ids := RightBefore()
	for i := range results {
		if r := &results[i]; !r.Silent() && r.Right() {
			ids = append(ids, r.ID())
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}
