package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"

	"github.com/crib-runtime/crib/cmd/crib/config"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/bridge"
	"github.com/crib-runtime/crib/network/cni"
	"github.com/crib-runtime/crib/network/nat"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/store"
)

// The names by which attachments know their drivers.
const (
	driverBridge = "bridge"
	driverCNI    = "cni"
)

// builtin is the name of the built-in network.
const builtin = "crib"

// cidrFact is the name under which the store keeps the kubelet's CIDRs.
const cidrFact = "network"

// networks are the drivers, and which of them new pods get.
type networks struct {
	cfg    config.Network
	store  *store.Store
	log    *slog.Logger
	table  *nat.Table
	bridge *bridge.Network
	cni    *cni.Networks

	mu      sync.Mutex // held while CIDRs change; guards relayed
	relayed cidrs
}

// cidrs is how the store keeps them.
type cidrs struct {
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
}

func openNetworks(cfg config.Config, st *store.Store, log *slog.Logger) (*networks, error) {
	n := &networks{cfg: cfg.Network, store: st, log: log}
	var err error
	if n.table, err = nat.Open(nat.Config{
		Table: builtin, Bridge: n.cfg.Bridge, Log: log,
		AntiSpoofing: n.cfg.AntiSpoofing, LetThrough: n.cfg.HostFirewall == "auto",
	}); err != nil {
		return nil, fmt.Errorf("open the nftables table: %w", err)
	}
	if err := n.openDrivers(cfg.State); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *networks) openDrivers(state string) (err error) {
	if n.bridge, err = bridge.Open(bridge.Config{
		Name:         builtin,
		Link:         n.cfg.Bridge,
		MTU:          n.cfg.MTU,
		Dir:          filepath.Join(state, "networks", builtin),
		Sysctls:      filepath.Join(state, "sysctls.json"),
		NoMasquerade: n.cfg.NoMasquerade,
		Log:          n.log,
	}, n.table); err != nil {
		return fmt.Errorf("open the built-in network: %w", err)
	}
	if n.cni, err = cni.Open(cni.Config{
		ConfDir:  n.cfg.CNI.ConfDir,
		BinDirs:  n.cfg.CNI.BinDirs,
		CacheDir: filepath.Join(state, "cni"),
		Only:     only(n.cfg.Primary),
		Timeout:  n.cfg.CNI.Timeout,
		Log:      n.log,
	}); err != nil {
		return fmt.Errorf("open the networks of CNI: %w", err)
	}
	return nil
}

// only returns the one conflist that the configuration chose, "" for no choice.
func only(primary string) string {
	if primary == "auto" || primary == "builtin" {
		return ""
	}
	return primary
}

func (n *networks) close() error { return n.table.Close() }

func (n *networks) drivers() map[string]sandbox.Network {
	return map[string]sandbox.Network{driverBridge: n.bridge, driverCNI: n.cni}
}

// choose returns the drivers of a new pod. The built-in network is the pod's
// first where the configuration says so, with every conflist beside it; where
// there is a conflist and no such word, the conflists are all.
func (n *networks) choose() []string {
	conflists := len(n.cni.Names()) > 0
	switch {
	case n.cfg.Primary == "builtin" && conflists:
		return []string{driverBridge, driverCNI}
	case n.cfg.Primary == "builtin", n.cfg.Primary == "auto" && !conflists:
		return []string{driverBridge}
	}
	return []string{driverCNI}
}

// start gives the built-in network its ranges: those of the configuration, else
// what the kubelet gave last. The kernel is touched by recovery only.
func (n *networks) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.store.Fact(cidrFact, &n.relayed); err != nil {
		n.log.Error("the pod CIDRs that the kubelet gave cannot be read; it gives them again when it restarts", "error", err)
	}
	ranges := n.cfg.CIDRs
	if len(ranges) == 0 {
		ranges = n.relayed.PodCIDRs
	}
	if len(ranges) == 0 {
		return nil
	}
	return n.bridge.SetCIDRs(ctx, ranges)
}

// relay takes the CIDRs of the kubelet, and keeps them on disk: the kubelet does
// not repeat them for a runtime that restarts. Those that the network refuses take
// nobody's place.
func (n *networks) relay(ctx context.Context, ranges []netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.cfg.CIDRs) > 0 {
		if !slices.Equal(ranges, n.cfg.CIDRs) {
			n.log.Warn("the kubelet's pod CIDRs are not used: network.cidrs is set", "kubelet", ranges, "configured", n.cfg.CIDRs)
		}
		return nil
	}
	if slices.Equal(ranges, n.relayed.PodCIDRs) {
		return nil
	}
	err := n.bridge.SetCIDRs(ctx, ranges)
	if errdefs.IsInvalidArgument(err) || errdefs.IsAlreadyExists(err) {
		return err
	}
	n.log.Info("pod CIDRs of the kubelet", "cidrs", ranges)
	return errors.Join(err, n.keep(cidrs{PodCIDRs: ranges}))
}

// keep writes the kubelet's CIDRs to disk; n.mu is held.
func (n *networks) keep(next cidrs) error {
	if err := n.store.SetFact(cidrFact, next); err != nil {
		return fmt.Errorf("keep the pod CIDRs: %w", err)
	}
	n.relayed = next
	return nil
}

// status is the verdict on new pods: that of the first driver which is not ready.
func (n *networks) status() network.Status {
	var last network.Status
	for i, driver := range n.choose() {
		status := n.drivers()[driver].Status()
		if !status.Ready || i == 0 {
			last = status
		}
		if !status.Ready {
			break
		}
	}
	return last
}

// serve runs the drivers' loops until ctx ends.
func (n *networks) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.bridge.Serve(ctx) })
	group.Go(func() error { return n.cni.Serve(ctx) })
	return group.Wait()
}

// again makes bridge, sysctls and table match the ranges that hold.
func (n *networks) again(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ranges []netip.Prefix
	for _, r := range n.bridge.Ranges() {
		ranges = append(ranges, r.CIDR)
	}
	if len(ranges) == 0 {
		return nil
	}
	return n.bridge.SetCIDRs(ctx, ranges)
}

// reset removes what is the host's: bridge, table, sysctls. The kubelet's CIDRs
// were those of the cluster that the node leaves.
func (n *networks) reset(ctx context.Context) error {
	errs := []error{n.bridge.Reset(ctx), n.table.Delete(ctx)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.relayed.PodCIDRs) > 0 {
		errs = append(errs, n.keep(cidrs{}))
	}
	return errors.Join(errs...)
}
