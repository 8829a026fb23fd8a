package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document is the text of one file.
type document struct {
	file string
	text []byte
}

// entry is a key with its value, or the heading of a table.
type entry struct {
	key   string // with its tables, as "log.level"
	line  int
	table bool
	value any // of a heading, the whole table
}

func (d document) place(line int) string {
	return fmt.Sprintf("%s:%d", d.file, line)
}

// entries returns what the document sets, in its order.
func (d document) entries() ([]entry, error) {
	var values map[string]any
	if err := toml.Unmarshal(d.text, &values); err != nil {
		return nil, d.syntax(err)
	}
	var all []entry
	parser := &unstable.Parser{}
	parser.Reset(d.text)
	var table []string
	for parser.NextExpression() {
		node := parser.Expression()
		if node.Kind == unstable.KeyValue {
			all = append(all, pairs(parser, table, node)...)
			continue
		}
		path, line := position(parser, node)
		table = path
		all = append(all, entry{key: strings.Join(path, "."), line: line, table: true})
	}
	if err := parser.Error(); err != nil {
		return nil, problem{place: d.file, text: err.Error()}
	}
	for i := range all {
		all[i].value = lookup(values, all[i].key)
	}
	return all, nil
}

// syntax turns a parser's error into one that tells the place.
func (d document) syntax(err error) error {
	var wrong *toml.DecodeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%s: %w: %w", d.file, err, errdefs.ErrInvalidArgument)
	}
	line, _ := wrong.Position()
	return problem{place: d.place(line), text: strings.TrimPrefix(wrong.Error(), "toml: ")}
}

// pairs returns the entry of a key, or those within its inline table.
func pairs(parser *unstable.Parser, table []string, node *unstable.Node) []entry {
	path, line := position(parser, node)
	path = append(append([]string(nil), table...), path...)
	value := node.Value()
	if value.Kind != unstable.InlineTable {
		return []entry{{key: strings.Join(path, "."), line: line}}
	}
	all := []entry{{key: strings.Join(path, "."), line: line, table: true}}
	for child := value.Child(); child.Valid(); child = child.Next() {
		all = append(all, pairs(parser, path, child)...)
	}
	return all
}

// position returns the parts of a node's key and the line it is on.
func position(parser *unstable.Parser, node *unstable.Node) (path []string, line int) {
	parts := node.Key()
	for parts.Next() {
		if line == 0 {
			line = parser.Shape(parts.Node().Raw).Start.Line
		}
		part := string(parts.Node().Data)
		if strings.Contains(part, ".") {
			part = strconv.Quote(part) // not to be taken for a key in a table
		}
		path = append(path, part)
	}
	return path, line
}

// lookup returns the value at a path through tables.
func lookup(values map[string]any, path string) any {
	var at any = values
	for part := range strings.SplitSeq(path, ".") {
		table, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = table[part]
	}
	return at
}
