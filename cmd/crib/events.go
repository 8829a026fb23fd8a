package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/events"
)

func newEvents(f *flags) *cobra.Command {
	var out output
	var follow bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happens to pods, containers and networks, as it happens",
		Long: `Show the last events of the daemon, and those to come until interrupted: pods that are
ready, stopped, died and removed, containers that are created, started, exited and removed,
repairs of networks, and what is owed. With --output json each is a line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			client, err := f.client()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			err = client.Events(ctx, follow, func(e events.Event) error { return writeEvent(cmd.OutOrStdout(), out, e) })
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
	out.flag(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", true, "go on with what happens from now on")
	return cmd
}

// writeEvent writes a line; a table has no end here that its columns could wait for.
func writeEvent(w io.Writer, out output, e events.Event) error {
	switch out.format {
	case "json":
		return out.line(w, e)
	case "yaml":
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
		return out.print(w, e, nil)
	}
	var of []string
	for _, key := range slices.Sorted(maps.Keys(e.Of)) {
		of = append(of, key+"="+oneLine(e.Of[key]))
	}
	if e.Lost > 0 {
		of = append(of, fmt.Sprintf("(%d events before it were lost)", e.Lost))
	}
	_, err := fmt.Fprintf(w, "%s  %-17s  %s  %s\n", e.At.Format("15:04:05.000"), e.Kind, e.Text, strings.Join(of, " "))
	return err
}
