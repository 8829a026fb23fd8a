package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/cmd/crib/daemon"
)

func newServe(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon until SIGTERM or SIGINT. Calls that run are let finish then;
pods go on without the daemon, and the next one takes them over.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			// Go ends a program that writes to a closed standard error, unless it is
			// notified. It is closed when the journal restarts.
			broken := make(chan os.Signal, 1)
			signal.Notify(broken, unix.SIGPIPE)
			defer signal.Stop(broken)
			d, err := open(ctx, f)
			if err != nil {
				return err
			}
			return d.Serve(ctx)
		},
	}
}

func newReset(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: "Remove all pods and give the host back: bridge, nftables table, pins, records, sysctls",
		Long: `Remove all pods and everything that crib made on the host: the bridge, the
nftables table, pinned namespaces, records, and the former values of sysctls
that crib had changed. The daemon must not run. Images and the configuration stay.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := open(cmd.Context(), f)
			if err != nil {
				return err
			}
			return d.Reset(cmd.Context())
		},
	}
}

// open makes a daemon of the configuration.
func open(ctx context.Context, f *flags) (*daemon.Daemon, error) {
	cfg, _, err := f.load()
	if err != nil {
		return nil, err
	}
	log, err := logger(cfg)
	if err != nil {
		return nil, err
	}
	// Modes below are meant as they are: a stricter umask of the caller would hide
	// resolv.conf from pods, a laxer one show new sockets to all for a moment.
	unix.Umask(0o022)
	return daemon.Open(ctx, cfg, version, log)
}
