package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// A Position is a place in the manifest. Lines and columns count from one;
// columns count characters.
type Position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// A Problem is one thing that is wrong with a manifest, and what to do about it.
type Problem struct {
	File string `json:"file"`
	Position
	Message string `json:"message"`
	// Hint says what to write instead. It may be empty.
	Hint string `json:"hint,omitempty"`
}

// Error returns the problem in one line, the way compilers do:
// file:line:column: message (hint).
func (p Problem) Error() string {
	text := fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

// Problems are all the things that are wrong with a manifest, in the order of
// its lines. As an error it reads one line each.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems one by one.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// sorted orders problems by place; those of one place keep their order.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return ps
}

// nearest returns the known name that a misspelt one most likely means, or "".
func nearest(name string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(name, k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	return best
}

// editDistance is the number of characters to insert, drop or replace to turn
// a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
