package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/admin"
)

func newPods(f *flags) *cobra.Command {
	return question[[]admin.Pod]{
		use:   "pods",
		short: "List pods with their addresses, and how long their start took",
		ask:   admin.Client.Pods,
		write: writePods,
	}.command(f)
}

func newNet(f *flags) *cobra.Command {
	return question[[]admin.Network]{
		use:   "net",
		short: "List networks with their CIDRs, and how many addresses are used and free",
		ask:   admin.Client.Networks,
		write: writeNetworks,
	}.command(f)
}

// question is a command that asks the daemon one thing and prints the answer, as
// a table for people or as JSON for programs.
type question[T any] struct {
	use, short string
	ask        func(admin.Client, context.Context) (T, error)
	write      func(io.Writer, T) error
}

func (q question[T]) command(f *flags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: q.use, Short: q.short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "json" && output != "table" {
				return fmt.Errorf("--output %q: want table or json", output)
			}
			cfg, _, err := f.load()
			if err != nil {
				return err
			}
			value, err := q.ask(admin.Client{Socket: cfg.Admin.Listen}, cmd.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(value)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			return errors.Join(q.write(table, value), table.Flush())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func writePods(w io.Writer, pods []admin.Pod) error {
	if _, err := fmt.Fprintln(w, "POD\tSTATE\tIPS\tSTART\tAGE\tID\tOWED"); err != nil {
		return err
	}
	for _, pod := range pods {
		if _, err := fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\n", pod.Namespace, pod.Name, pod.State, joinIPs(pod.IPs),
			total(pod.Timeline), time.Since(pod.CreatedAt).Round(time.Second), pod.ID[:min(12, len(pod.ID))], oneLine(pod.Owed)); err != nil {
			return err
		}
	}
	return nil
}

// oneLine keeps joined errors in their row.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

func joinIPs(ips []netip.Addr) string {
	texts := make([]string, 0, len(ips))
	for _, ip := range ips {
		texts = append(texts, ip.String())
	}
	return strings.Join(texts, ",")
}

func total(timeline []admin.Stage) string {
	for _, stage := range timeline {
		if stage.Name == "total" {
			return fmt.Sprintf("%.1fms", stage.Millis)
		}
	}
	return "-"
}

func writeNetworks(w io.Writer, networks []admin.Network) error {
	if _, err := fmt.Fprintln(w, "NETWORK\tDRIVER\tNEW PODS\tREADY\tCIDR\tGATEWAY\tUSED\tFREE\tMESSAGE"); err != nil {
		return err
	}
	for _, n := range networks {
		head := fmt.Sprintf("%s\t%s\t%t\t%t", n.Name, n.Driver, n.Used, n.Status.Ready)
		if len(n.Ranges) == 0 {
			if _, err := fmt.Fprintf(w, "%s\t-\t-\t-\t-\t%s\n", head, oneLine(n.Status.Message)); err != nil {
				return err
			}
		}
		for _, r := range n.Ranges {
			if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", head, r.CIDR, r.Gateway, r.Used, r.Free, oneLine(n.Status.Message)); err != nil {
				return err
			}
		}
	}
	return nil
}
