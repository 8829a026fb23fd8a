package daemon

import (
	"context"
	"encoding/json"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/cmd/crib/events"
	"github.com/crib-runtime/crib/network"
)

// NetworkStatus implements cri.Node.
func (d *Daemon) NetworkStatus() network.Status { return d.nets.status() }

// SetPodCIDRs implements cri.Node.
func (d *Daemon) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
	return d.nets.relay(ctx, cidrs)
}

// MountFeatures implements cri.Node.
func (d *Daemon) MountFeatures() (recursiveReadOnly, idMap bool) {
	return d.engine.Info().RecursiveReadOnly, d.engine.Info().IDMap
}

// Info implements cri.Node. kubeadm reads sandboxImage of "config" and warns
// where it is missing; there is no such image.
func (d *Daemon) Info() map[string]string {
	info := map[string]string{}
	for name, value := range map[string]any{
		"config":  map[string]any{"sandboxImage": "", "root": d.cfg.Root, "state": d.cfg.State, "systemdCgroup": d.SystemdCgroup()},
		"golang":  runtime.Version(),
		"engine":  d.engine.Info(),
		"network": d.Networks(),
	} {
		b, err := json.Marshal(value)
		if err != nil {
			d.log.Warn("a part of the status cannot be shown", "part", name, "error", err)
			continue
		}
		info[name] = string(b)
	}
	return info
}

// ImageStore implements admin.ImageSource.
func (d *Daemon) ImageStore() admin.Images { return d.engine }

// Events are what happens; the admin API passes them on.
func (d *Daemon) Events() *events.Hub { return &d.events }

// Version implements admin.Source.
func (d *Daemon) Version() string { return d.version }

// Pods implements admin.Source.
func (d *Daemon) Pods() []admin.Pod {
	owed := map[string]string{}
	for _, debt := range d.pods.Debts() {
		owed[debt.Pod.ID] = debt.Err.Error()
	}
	pods := []admin.Pod{} // in JSON, lists are lists and never null
	for _, pod := range d.pods.List() {
		item := admin.Pod{
			ID: pod.ID, Namespace: pod.Spec.Namespace, Name: pod.Spec.Name, UID: pod.Spec.UID,
			State: string(pod.State), CreatedAt: pod.CreatedAt, InitPID: pod.InitPID, Owed: owed[pod.ID],
			IPs: []netip.Addr{}, Attachments: []network.Attachment{}, Timeline: []admin.Stage{},
		}
		if !pod.Released {
			item.Attachments, item.IPs = append(item.Attachments, pod.Attachments...), append(item.IPs, pod.IPs()...)
		}
		for _, stage := range pod.Timeline {
			item.Timeline = append(item.Timeline, admin.Stage{Name: stage.Name, At: millis(stage.At), Millis: millis(stage.Took)})
		}
		pods = append(pods, item)
	}
	return pods
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Containers implements admin.Source.
func (d *Daemon) Containers() []admin.Container {
	all := []admin.Container{}
	for _, c := range d.containers.List() {
		all = append(all, admin.Container{
			ID: c.ID, PodID: c.Spec.PodID, Name: c.Spec.Name, State: string(c.State), CreatedAt: c.CreatedAt, PID: c.PID,
		})
	}
	return all
}

// Ops implements admin.Source.
func (d *Daemon) Ops() admin.Ops {
	all := admin.Ops{InFlight: d.inFlight.List(), Owed: []admin.Debt{}}
	all.Reason, all.Message = d.Trouble()
	for _, debt := range d.pods.Debts() {
		all.Owed = append(all.Owed, admin.Debt{
			Object: "pod", Name: debt.Pod.Spec.Key.String(), ID: debt.Pod.ID,
			Since: debt.Since, Attempts: debt.Attempts, Error: debt.Err.Error(),
		})
	}
	for _, debt := range d.containers.Debts() {
		all.Owed = append(all.Owed, admin.Debt{
			Object: "container", Name: debt.Container.Spec.Name, ID: debt.Container.ID,
			Since: debt.Since, Attempts: debt.Attempts, Error: debt.Err.Error(),
		})
	}
	slices.SortFunc(all.Owed, func(a, b admin.Debt) int { return a.Since.Compare(b.Since) })
	return all
}

// Networks implements admin.Source.
func (d *Daemon) Networks() []admin.Network {
	used := map[string]bool{}
	for _, driver := range d.nets.choose() {
		used[driver] = true
	}
	built := admin.Network{Name: builtin, Driver: driverBridge, Used: used[driverBridge], Status: d.nets.bridge.Status(), Ranges: []admin.Range{}}
	built.Link, built.Table = d.cfg.Network.Bridge, "inet "+builtin
	for _, r := range d.nets.bridge.Ranges() {
		built.Ranges = append(built.Ranges, admin.Range{CIDR: r.CIDR, Gateway: r.Gateway, Used: r.Used, Free: r.Free})
	}
	built.Findings = d.nets.bridge.Findings()
	built.Repairs, built.Repaired = d.nets.bridge.Repairs()
	all := []admin.Network{built}
	for _, name := range d.nets.cni.Names() {
		all = append(all, admin.Network{
			Name: name, Driver: driverCNI, Used: used[driverCNI], Status: d.nets.cni.Status(), Ranges: []admin.Range{},
		})
	}
	return all
}
