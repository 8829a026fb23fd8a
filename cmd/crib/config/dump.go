package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Dump writes every key with its value, and where it was set as a comment. The
// text is valid TOML and gives the same values when it is read.
func Dump(w io.Writer, c Config, set Origins) error {
	var out bytes.Buffer
	table := ""
	for _, k := range keys() {
		in, name := "", k.name
		if at := strings.LastIndex(k.name, "."); at >= 0 {
			in, name = k.name[:at], k.name[at+1:]
		}
		if in != table {
			fmt.Fprintf(&out, "\n[%s]\n", in)
			table = in
		}
		value, err := literal(k.show(c))
		if err != nil {
			return fmt.Errorf("show %s: %w", k.name, err)
		}
		from, ok := set[k.name]
		if !ok {
			from = "default"
		}
		fmt.Fprintf(&out, "%s = %s # %s\n", name, value, from)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// literal writes a value. JSON's strings, numbers and lists are TOML's as well.
func literal(v any) (string, error) {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	err := to.Encode(v)
	return strings.TrimSpace(out.String()), err
}
