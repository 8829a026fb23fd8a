package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/look"
)

func newNet(f *flags) *cobra.Command {
	cmd := question[[]admin.Network]{
		use:   "net",
		short: "List networks with their CIDRs, and how many addresses are used and free",
		ask:   plain(admin.Client.Networks),
		write: writeNetworks,
		watch: true,
	}.command(f)
	cmd.AddCommand(newNetShow(f), newNetMap(f), newNetCheck(f), newNetTrace(f))
	return cmd
}

func newNetShow(f *flags) *cobra.Command {
	return question[admin.PodNetwork]{
		use:   "show POD",
		short: "Show a pod's links, addresses, routes, ports, counters, and how its start went",
		long: `Show what the record says of a pod's network, and what the kernel says of both ends of
its links. POD is namespace/name, the name, the id or its beginning.`,
		args:     cobra.ExactArgs(1),
		complete: f.completePod,
		watch:    true,
		ask: func(ctx context.Context, client admin.Client, args []string) (admin.PodNetwork, error) {
			return client.PodNetwork(ctx, args[0])
		},
		write: writePodNetwork,
	}.command(f)
}

func newNetTrace(f *flags) *cobra.Command {
	return question[[]look.Step]{
		use:   "trace POD ADDRESS[:PORT]",
		short: "Follow a packet from a pod through routes, bridge, our table and others' chains",
		long: `Follow a packet from a pod to where it leaves the host or to what stops it: the routes
that match, how the next ones are known, the bridge's ports, host ports and masquerading of
our own table, and chains of others that drop by their policy. Rules of others, Services
of kube-proxy among them, are not evaluated. Nothing is sent.`,
		args:     cobra.ExactArgs(2),
		complete: f.completePod,
		ask: func(ctx context.Context, client admin.Client, args []string) ([]look.Step, error) {
			to, err := netip.ParseAddrPort(args[1])
			if err != nil {
				var addr netip.Addr
				addr, err = netip.ParseAddr(args[1])
				to = netip.AddrPortFrom(addr, 0)
			}
			if err != nil {
				return nil, fmt.Errorf("%q: want an address, or an address and a port as 10.0.0.1:80 or [fd00::1]:80", args[1])
			}
			return client.Trace(ctx, args[0], to)
		},
		write: func(w io.Writer, steps []look.Step) error {
			return rows(w, "AT\tWHAT", steps, func(s look.Step) string {
				if s.Stops {
					return s.Where + "\tSTOPS: " + oneLine(s.What)
				}
				return s.Where + "\t" + oneLine(s.What)
			})
		},
	}.command(f)
}

// errFindings is the error of a check that found something.
var errFindings = errors.New("something is not as it should be")

func newNetCheck(f *flags) *cobra.Command {
	var out output
	var repair bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the kernel with the records; the exit status is 1 if something differs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			client, err := f.client()
			if err != nil {
				return err
			}
			ask := client.Findings
			if repair {
				ask = client.Repair
			}
			findings, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			err = out.print(cmd.OutOrStdout(), findings, func(w io.Writer) error { return writeNetFindings(w, findings) })
			if err == nil && len(findings) > 0 {
				err = errFindings
			}
			return err
		},
	}
	out.flag(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended first, and show what is left")
	return cmd
}

func writeNetFindings(w io.Writer, findings []network.Finding) error {
	if len(findings) == 0 {
		_, err := fmt.Fprintln(w, "all is as the records say")
		return err
	}
	return rows(w, "KIND\tOBJECT\tFINDING\tREMEDY", findings, func(f network.Finding) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", f.Kind, f.Object, oneLine(f.Text), f.Remedy)
	})
}

func writeNetworks(w io.Writer, networks []admin.Network) error {
	var lines []string
	for _, n := range networks {
		head := fmt.Sprintf("%s\t%s\t%s\t%s\t%t\t%t", n.Name, n.Driver, orDash(n.Link), orDash(n.Table), n.Used, n.Status.Ready)
		if len(n.Ranges) == 0 {
			lines = append(lines, fmt.Sprintf("%s\t-\t-\t-\t-\t%s", head, oneLine(n.Status.Message)))
		}
		for _, r := range n.Ranges {
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s", head, r.CIDR, r.Gateway, r.Used, r.Free, oneLine(n.Status.Message)))
		}
	}
	err := rows(w, "NETWORK\tDRIVER\tLINK\tTABLE\tNEW PODS\tREADY\tCIDR\tGATEWAY\tUSED\tFREE\tMESSAGE", lines, func(line string) string { return line })
	for _, n := range networks {
		if err == nil && len(n.Repairs) > 0 {
			err = writeRepairs(w, n.Repairs)
		}
	}
	return err
}

// shownRepairs is how many of the last repairs people get to see.
const shownRepairs = 10

func writeRepairs(w io.Writer, repairs []network.Repair) error {
	return rows(w, "\nREPAIRED\tKIND\tOBJECT\tWHAT WAS WRONG\tDONE", repairs[max(0, len(repairs)-shownRepairs):], func(r network.Repair) string {
		done := r.Done
		if r.Error != "" {
			done = "in vain: " + r.Error
		}
		return fmt.Sprintf("%s ago\t%s\t%s\t%s\t%s", age(r.At), r.Kind, r.Object, oneLine(r.Text), oneLine(done))
	})
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
