package main

import (
	"context"
	"encoding/json"
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
	return show(f, "pods", "List pods with their addresses, and how long their start took",
		admin.Client.Pods, writePods)
}

func newNet(f *flags) *cobra.Command {
	return show(f, "net", "List networks with their CIDRs, and how many addresses are used and free",
		admin.Client.Networks, writeNetworks)
}

// askFunc is a question to the daemon.
type askFunc[T any] = func(admin.Client, context.Context) (T, error)

// show is a command that asks the daemon one thing and prints it, as a table for
// people or as JSON for programs.
func show[T any](f *flags, use, short string, ask askFunc[T], write func(io.Writer, T) error) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := f.load()
			if err != nil {
				return err
			}
			value, err := ask(admin.Client{Socket: cfg.Admin.Listen}, cmd.Context())
			if err != nil {
				return err
			}
			switch output {
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(value)
			case "table":
				table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
				if err := write(table, value); err != nil {
					return err
				}
				return table.Flush()
			}
			return fmt.Errorf("--output %q: want table or json", output)
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
			total(pod.Timeline), time.Since(pod.CreatedAt).Round(time.Second), pod.ID[:12], pod.Owed); err != nil {
			return err
		}
	}
	return nil
}

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
			if _, err := fmt.Fprintf(w, "%s\t-\t-\t-\t-\t%s\n", head, n.Status.Message); err != nil {
				return err
			}
		}
		for _, r := range n.Ranges {
			if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", head, r.CIDR, r.Gateway, r.Used, r.Free, n.Status.Message); err != nil {
				return err
			}
		}
	}
	return nil
}
