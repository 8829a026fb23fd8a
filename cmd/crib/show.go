package main

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/admin"
)

func newPods(f *flags) *cobra.Command {
	return question[[]admin.Pod]{
		use:   "pods",
		short: "List pods with their addresses, and how long their start took",
		ask:   plain(admin.Client.Pods),
		write: writePods,
		watch: true,
	}.command(f)
}

func writePods(w io.Writer, pods []admin.Pod) error {
	return rows(w, "POD\tSTATE\tIPS\tSTART\tAGE\tID\tOWED", pods, func(pod admin.Pod) string {
		return fmt.Sprintf("%s/%s\t%s\t%s\t%s\t%s\t%s\t%s", pod.Namespace, pod.Name, pod.State, joinIPs(pod.IPs),
			total(pod.Timeline), age(pod.CreatedAt), short(pod.ID), oneLine(pod.Owed))
	})
}

// short is an id as people see it.
func short(id string) string { return id[:min(12, len(id))] }

// age is how long ago something was, to the second.
func age(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }

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
