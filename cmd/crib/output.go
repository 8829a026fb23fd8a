package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is how a command prints what it knows: a table for people, JSON or YAML
// for programs.
type output struct{ format string }

// formats are the values of --output.
func formats() []string { return []string{"table", "json", "yaml"} }

// flag adds --output to a command.
func (o *output) flag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// check refuses what is no format, before anything is asked.
func (o *output) check() error {
	if slices.Contains(formats(), o.format) {
		return nil
	}
	return fmt.Errorf("--output %q: want table, json or yaml", o.format)
}

// print writes the value; table has columns separated by tabs.
func (o *output) print(w io.Writer, value any, table func(io.Writer) error) error {
	switch o.format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	columns := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	return errors.Join(table(columns), columns.Flush())
}

// line writes the value as JSON on a line of its own.
func (o *output) line(w io.Writer, value any) error { return json.NewEncoder(w).Encode(value) }

// rows writes a line of each, its cells separated by tabs, below a heading.
func rows[T any](w io.Writer, heading string, items []T, cells func(T) string) error {
	if _, err := fmt.Fprintln(w, heading); err != nil {
		return err
	}
	for _, item := range items {
		if _, err := fmt.Fprintln(w, cells(item)); err != nil {
			return err
		}
	}
	return nil
}
