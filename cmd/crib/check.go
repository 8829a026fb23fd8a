package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/cmd/crib/config"
	"github.com/crib-runtime/crib/cmd/crib/daemon"
	"github.com/crib-runtime/crib/cmd/crib/host"
)

// errUnfit is the error of a host on which pods do not work.
var errUnfit = errors.New("something that pods need is missing; the lines above say what mends it")

func newCheck(f *flags) *cobra.Command {
	var out output
	var inside bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look what the host lacks, and say what mends it",
		Long: `Look at kernel, OCI runtime, cgroups, sysctls, firewalls and disks, and say of what is
missing which command mends it. What cannot be read is tried, in namespaces that go
away. No daemon need run, and one that runs is not disturbed. The exit status is 1
if something is missing without which pods do not work.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if inside {
				findings, err := host.Inside(cmd.Context())
				return errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(findings))
			}
			if err := out.check(); err != nil {
				return err
			}
			cfg, _, err := f.load()
			if err != nil {
				return err
			}
			findings := host.Check(cmd.Context(), hostConfig(cfg))
			err = out.print(cmd.OutOrStdout(), findings, func(w io.Writer) error { return writeFindings(w, findings) })
			if err == nil && host.Worst(findings) == host.Missing {
				err = errUnfit
			}
			return err
		},
	}
	out.flag(cmd)
	cmd.Flags().BoolVar(&inside, "inside", false, "")
	_ = cmd.Flags().MarkHidden("inside") // the flag is there
	return cmd
}

func hostConfig(cfg config.Config) host.Config {
	return host.Config{
		Root: cfg.Root, State: cfg.State, Bridge: cfg.Network.Bridge, CIDRs: cfg.Network.CIDRs,
		OCIRuntime: cfg.Engine.OCIRuntime, Programs: daemon.Programs(cfg), Try: tryInside,
	}
}

// tryInside runs this program's check --inside in namespaces of its own.
func tryInside(ctx context.Context) (findings []host.Finding, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "check", "--inside")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, oneLine(string(exit.Stderr)))
	}
	if err != nil {
		return nil, err
	}
	return findings, json.Unmarshal(out, &findings)
}

// writeFindings puts the remedy below what it is for: it is to be copied.
func writeFindings(w io.Writer, findings []host.Finding) error {
	err := rows(w, "VERDICT\tPART\tWHAT\tFOUND", findings, func(f host.Finding) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", f.Verdict, f.Part, f.Name, oneLine(f.Found))
	})
	for _, f := range findings {
		if f.Verdict != host.Good && err == nil {
			_, err = fmt.Fprintf(w, "\n%s: %s, %s\n  %s\n  mend: %s\n", f.Verdict, f.Part, f.Name, oneLine(f.Found), f.Remedy)
		}
	}
	return err
}
