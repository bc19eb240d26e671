package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A key describes one key of a table: what it takes, what its absence means,
// and where its value goes.
type key[T any] struct {
	name   string
	takes  string // the type of the value, in the words of the reference
	absent string // what the key's absence means
	bounds string
	about  string
	// init stores what the key's absence means; nil if the zero value does.
	init func(*T)
	set  func(*decoder, *T, *node)
	// required keys have no default.
	required bool
	// later keys are known and refused: what they promise would not be kept.
	later bool
}

// A decoder fills structures from tables and gathers what is wrong on the way.
type decoder struct {
	file     string
	env      func(string) (string, bool)
	problems Problems
}

func (d *decoder) report(at Position, hint, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Position: at, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// decodeTable fills target from a table. The path names the table in messages.
func decodeTable[T any](d *decoder, keys []key[T], target *T, table *node, path string) {
	applyDefaults(keys, target)
	for _, k := range keys {
		if _, ok := table.lookup(k.name); !ok && k.required {
			d.report(table.at, k.about, "%s is missing", dotted(path, k.name))
		}
	}
	for _, e := range table.entries {
		k, ok := find(keys, e.name)
		switch {
		case !ok:
			d.report(e.at, unknownHint(keys, e.name, path), "unknown key %s", quoteKey(e.name))
		case k.later:
			d.report(e.at, "remove it", "%s is not supported by this version", dotted(path, k.name))
		default:
			k.set(d, target, e.value)
		}
	}
}

// applyDefaults fills target the way an empty table does.
func applyDefaults[T any](keys []key[T], target *T) {
	for _, k := range keys {
		if k.init != nil {
			k.init(target)
		}
	}
}

func find[T any](keys []key[T], name string) (key[T], bool) {
	for _, k := range keys {
		if k.name == name {
			return k, true
		}
	}
	return key[T]{}, false
}

func unknownHint[T any](keys []key[T], name, path string) string {
	var known, usable []string
	for _, k := range keys {
		known = append(known, k.name)
		if !k.later {
			usable = append(usable, k.name)
		}
	}
	if near := nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	where := "at the top level"
	if path != "" {
		where = "in [" + path + "]"
	}
	return where + " you can use " + strings.Join(usable, ", ")
}

func dotted(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// quoteKey shows a key the way it is written in the document.
func quoteKey(name string) string {
	if isName(name) {
		return name
	}
	return strconv.Quote(name)
}

// text returns the value of a string node.
func (d *decoder) text(n *node, name, example string) (Text, bool) {
	if n.kind != unstable.String {
		d.report(n.at, "write "+example, "%s must be text in quotes, not %s", name, n.describe())
		return Text{}, false
	}
	return Text{n.text, n.at}, true
}

func textKey[T any](name, about string, field func(*T) *Text) key[T] {
	return key[T]{name: name, takes: "text", absent: "none", about: about, set: func(d *decoder, t *T, n *node) {
		if text, ok := d.text(n, name, name+` = "…"`); ok {
			*field(t) = text
		}
	}}
}

func listKey[T any](name, bounds, about string, field func(*T) *[]Text) key[T] {
	init := func(t *T) { *field(t) = []Text{} }
	return key[T]{name: name, takes: "list of text", absent: "[]", bounds: bounds, about: about, init: init, set: func(d *decoder, t *T, n *node) {
		if n.kind != unstable.Array {
			d.report(n.at, "write "+name+` = ["…", "…"]`, "%s must be a list, not %s", name, n.describe())
			return
		}
		for _, item := range n.items {
			if text, ok := d.text(item, "an element of "+name, name+` = ["…", "…"]`); ok {
				*field(t) = append(*field(t), text)
			}
		}
	}}
}

// measureKey describes a key whose value is a number with a unit, written as
// text, between two bounds.
func measureKey[T any, M ~int64](name, takes, def, lowest, highest, about string, parse func(string) (M, error), field func(*T) *M) key[T] {
	known := func(text string) M {
		m, err := parse(text)
		if err != nil {
			panic(fmt.Sprintf("manifest: the table of keys: %s: %v", name, err))
		}
		return m
	}
	low, high, initial := known(lowest), known(highest), known(def)
	bounds := lowest + " to " + highest
	return key[T]{
		name: name, takes: takes, absent: strconv.Quote(def), bounds: bounds, about: about,
		init: func(t *T) { *field(t) = initial },
		set: func(d *decoder, t *T, n *node) {
			text, ok := d.text(n, name, fmt.Sprintf("%s = %q", name, def))
			if !ok {
				return
			}
			m, err := parse(text.Value)
			switch {
			case err != nil:
				d.report(n.at, err.Error(), "%s: %q is not a %s", name, text.Value, takes)
			case m < low || m > high:
				d.report(n.at, "allowed is "+bounds, "%s: %q is out of bounds", name, text.Value)
			default:
				*field(t) = m
			}
		},
	}
}

func durationKey[T any](name, def, lowest, highest, about string, field func(*T) *Duration) key[T] {
	return measureKey(name, "duration", def, lowest, highest, about, parseDuration, field)
}

func sizeKey[T any](name, def, lowest, highest, about string, field func(*T) *Size) key[T] {
	return measureKey(name, "size", def, lowest, highest, about, parseSize, field)
}

func integerKey[T any](name string, def, lowest, highest int, about string, field func(*T) *int) key[T] {
	bounds := fmt.Sprintf("%d to %d", lowest, highest)
	return key[T]{
		name: name, takes: "integer", absent: strconv.Itoa(def), bounds: bounds, about: about,
		init: func(t *T) { *field(t) = def },
		set: func(d *decoder, t *T, n *node) {
			value, err := strconv.ParseInt(n.text, 0, 64)
			switch {
			case n.kind != unstable.Integer || err != nil:
				d.report(n.at, fmt.Sprintf("write %s = %d", name, def), "%s must be a whole number, not %s", name, n.describe())
			case value < int64(lowest) || value > int64(highest):
				d.report(n.at, "allowed is "+bounds, "%s: %d is out of bounds", name, value)
			default:
				*field(t) = int(value)
			}
		},
	}
}

// fractionKey describes a key whose value is a share, above 0 and at most 1.
func fractionKey[T any](name string, def float64, about string, field func(*T) *float64) key[T] {
	written := strconv.FormatFloat(def, 'g', -1, 64)
	const bounds = "above 0, at most 1"
	return key[T]{
		name: name, takes: "number", absent: written, bounds: bounds, about: about,
		init: func(t *T) { *field(t) = def },
		set: func(d *decoder, t *T, n *node) {
			value, err := strconv.ParseFloat(n.text, 64)
			switch {
			case n.kind != unstable.Float && n.kind != unstable.Integer || err != nil:
				d.report(n.at, "write "+name+" = "+written, "%s must be a number, not %s", name, n.describe())
			case !(value > 0 && value <= 1): // not a number included
				d.report(n.at, "allowed is "+bounds, "%s: %s is out of bounds", name, n.text)
			default:
				*field(t) = value
			}
		},
	}
}

// laterKey describes a key that a later version will know.
func laterKey[T any](name string) key[T] {
	return key[T]{name: name, later: true}
}

// table reports whether n is a table, and complains if it is not.
func (d *decoder) table(n *node, path string) bool {
	if n.kind == unstable.Table {
		return true
	}
	d.report(n.at, "write ["+path+"] and its keys below", "%s must be a table, not %s", path, n.describe())
	return false
}

// expand fills in the environment's values in a text.
func (d *decoder) expand(name string, t Text) Text {
	value, errs := expand(t.Value, d.env)
	for _, err := range errs {
		d.report(t.At, "set it, or give a default: ${NAME:-default}", "%s: %v", name, err)
	}
	if len(errs) > 0 {
		value = ""
	}
	return Text{value, t.At}
}
