package manifest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A node is a value of a TOML document with its place. The decoder of the TOML
// library stops at the first wrong type and forgets where values stood; a tree
// with places lets every problem be reported at once.
type node struct {
	at      Position
	kind    unstable.Kind // Table for tables of every notation
	text    string        // a scalar's value
	items   []*node       // an array's elements
	entries []entry       // a table's keys, in the order of the document
}

// An entry is a key of a table and its value.
type entry struct {
	name  string
	at    Position
	value *node
}

func (n *node) lookup(name string) (entry, bool) {
	for _, e := range n.entries {
		if e.name == name {
			return e, true
		}
	}
	return entry{}, false
}

// describe names the node's type the way the messages do.
func (n *node) describe() string {
	switch n.kind {
	case unstable.String:
		return "the text " + strconv.Quote(n.text)
	case unstable.Integer, unstable.Float:
		return "the number " + n.text
	case unstable.Bool:
		return n.text
	case unstable.Array, unstable.ArrayTable:
		return "a list"
	case unstable.Table:
		return "a table"
	default:
		return "a date or time"
	}
}

// A reader turns the text of a document into nodes.
type reader struct {
	text   []byte
	parser unstable.Parser
}

// parseDocument returns the root table of a document. The library has the first
// look: what it accepts has no syntax errors and defines nothing twice.
func parseDocument(text []byte) (*node, *Problem) {
	if err := toml.Unmarshal(text, new(map[string]any)); err != nil {
		return nil, syntaxProblem(text, err)
	}
	r := &reader{text: text}
	root := &node{kind: unstable.Table, at: Position{1, 1}}
	current := root
	r.parser.Reset(text)
	for r.parser.NextExpression() {
		switch e := r.parser.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			current = r.header(root, e)
		case unstable.KeyValue:
			r.keyValue(current, e)
		default:
		}
	}
	return root, nil
}

func syntaxProblem(text []byte, err error) *Problem {
	message := "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")
	line, column := 1, 1
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column = decode.Position()
	}
	if lines := bytes.SplitAfter(text, []byte("\n")); line <= len(lines) {
		column = utf8.RuneCount(lines[line-1][:min(column-1, len(lines[line-1]))]) + 1
	}
	return &Problem{Position: Position{line, column}, Message: message}
}

func (r *reader) position(raw unstable.Range) Position {
	before := r.text[:raw.Offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return Position{bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1}
}

// header enters the table that a [header] names.
func (r *reader) header(root *node, expression *unstable.Node) *node {
	table := root
	var last *unstable.Node
	for keys := expression.Key(); keys.Next(); {
		last = keys.Node()
		table = r.enter(table, last)
	}
	table.at, table.kind = r.position(last.Raw), expression.Kind
	return table
}

// enter returns the table under a key, which it makes if there is none.
func (r *reader) enter(table *node, key *unstable.Node) *node {
	if e, ok := table.lookup(string(key.Data)); ok {
		return e.value
	}
	at := r.position(key.Raw)
	inner := &node{kind: unstable.Table, at: at}
	table.entries = append(table.entries, entry{name: string(key.Data), at: at, value: inner})
	return inner
}

// keyValue adds a key, dotted or not, with its value to a table.
func (r *reader) keyValue(table *node, expression *unstable.Node) {
	keys := expression.Key()
	keys.Next()
	for !keys.IsLast() {
		table = r.enter(table, keys.Node())
		keys.Next()
	}
	at, name := r.position(keys.Node().Raw), string(keys.Node().Data)
	table.entries = append(table.entries, entry{name: name, at: at, value: r.value(expression.Value(), at)})
}

// value turns a value into a node. Arrays carry no place of their own in the
// parser: they get that of their key.
func (r *reader) value(v *unstable.Node, key Position) *node {
	n := &node{kind: v.Kind, at: key, text: string(v.Data)}
	if v.Raw.Length > 0 {
		n.at = r.position(v.Raw)
	}
	children := v.Children()
	switch v.Kind {
	case unstable.Array:
		for children.Next() {
			n.items = append(n.items, r.value(children.Node(), key))
		}
	case unstable.InlineTable:
		n.kind = unstable.Table
		for children.Next() {
			r.keyValue(n, children.Node())
		}
	default:
	}
	return n
}
