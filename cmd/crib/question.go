package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/admin"
)

// watchEvery is the time between two looks of --watch.
const watchEvery = time.Second

// question is a command that asks the daemon one thing and prints the answer.
type question[T any] struct {
	use, short, long string
	args             cobra.PositionalArgs
	ask              func(ctx context.Context, client admin.Client, args []string) (T, error)
	write            func(io.Writer, T) error
	watch            bool                                                                        // has --watch
	complete         func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) // of arguments
}

// plain makes an ask of a method of the client without arguments.
func plain[T any](ask func(admin.Client, context.Context) (T, error)) func(context.Context, admin.Client, []string) (T, error) {
	return func(ctx context.Context, client admin.Client, _ []string) (T, error) { return ask(client, ctx) }
}

func (q question[T]) command(f *flags) *cobra.Command {
	var out output
	var watch bool
	if q.args == nil {
		q.args = cobra.NoArgs
	}
	cmd := &cobra.Command{
		Use: q.use, Short: q.short, Long: q.long, Args: q.args, ValidArgsFunction: q.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			client, err := f.client()
			if err != nil {
				return err
			}
			answer := func(ctx context.Context) error {
				value, err := q.ask(ctx, client, args)
				if err != nil {
					return err
				}
				return out.print(cmd.OutOrStdout(), value, func(w io.Writer) error { return q.write(w, value) })
			}
			if watch {
				return repeat(cmd, answer)
			}
			return answer(cmd.Context())
		},
	}
	out.flag(cmd)
	if q.watch {
		cmd.Flags().BoolVarP(&watch, "watch", "w", false, "ask again each second until interrupted")
	}
	return cmd
}

// repeat answers each second until the command is interrupted. On a terminal an
// answer takes the place of the one before.
func repeat(cmd *cobra.Command, answer func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if isTerminal(cmd.OutOrStdout()) {
			if _, err := fmt.Fprint(cmd.OutOrStdout(), "\x1b[H\x1b[2J"); err != nil {
				return err
			}
		}
		err := answer(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
