package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/network/ops"
)

func newOps(f *flags) *cobra.Command {
	return question[admin.Ops]{
		use:   "ops",
		short: "Show what is in flight, at which stage, and what teardowns still owe",
		long: `Show the operations in flight: how old they are, at which stage, for which lock they
wait and what its holder does; and what teardowns could not do yet: since when, how
often it was tried, and the last error.`,
		ask:   plain(admin.Client.Ops),
		write: writeOps,
		watch: true,
	}.command(f)
}

func writeOps(w io.Writer, all admin.Ops) error {
	if all.Reason != "" {
		if _, err := fmt.Fprintf(w, "%s: %s\n\n", all.Reason, oneLine(all.Message)); err != nil {
			return err
		}
	}
	err := rows(w, "OPERATION\tOF\tID\tAGE\tSTAGE", all.InFlight, func(op ops.Operation) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", op.Verb, op.Subject, short(op.ID), op.Age.Round(time.Millisecond), stageOf(op))
	})
	if err != nil || len(all.Owed) == 0 {
		return err
	}
	return rows(w, "\nOWED\tOF\tID\tSINCE\tATTEMPTS\tLAST ERROR", all.Owed, func(d admin.Debt) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", d.Object, d.Name, short(d.ID), age(d.Since), d.Attempts, oneLine(d.Error))
	})
}

// stageOf tells where an operation is, or for whom it waits.
func stageOf(op ops.Operation) string {
	if op.WaitsFor != "" {
		return "waits for " + op.WaitsFor
	}
	var at []string
	for _, s := range op.At {
		at = append(at, fmt.Sprintf("%s (%s)", s.Name, s.Took.Round(time.Millisecond)))
	}
	return strings.Join(at, ", ")
}
