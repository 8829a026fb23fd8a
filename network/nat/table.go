package nat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
)

// cleanupTime is how long a removal waits for its turn when the caller's context
// does not count.
const cleanupTime = 30 * time.Second

// Config says how a table is made. The zero value works.
type Config struct {
	Table  string       // its name; optional, "crib" by default
	Bridge string       // the pods' bridge, for the guard of the loopback; empty stands for every interface
	Log    *slog.Logger // optional

	// AntiSpoofing drops what a pod sends from other link and IP addresses than its
	// own. It needs the names of pods' links to begin with network.Prefix. Where the
	// kernel has no nf_tables for bridges it is left out, with a warning.
	AntiSpoofing bool

	// LetThrough puts rules into others' chains whose policy drops what the host
	// forwards, so that they do not cut off Bridge. Else they are only found.
	LetThrough bool
}

// Table is the table of nftables and what is meant to be in it. It is safe for
// concurrent use. What speaks to the kernel does so one after the other, and
// gives up when ctx ends before its turn; once begun it ends within ten seconds.
type Table struct {
	cfg    Config
	queue  *queue
	kernel kernel
	last   culprit

	mu       sync.Mutex // guards what follows; never held while the kernel works
	book     *book
	networks []element
	verdict  error
}

// Open returns the table after a trial whether this kernel can hold it; nothing
// is changed. At start call SetNetworks, which leaves a former process's host
// ports alone, then Restore; anything else before Restore takes the empty memory
// at its word and removes them. ErrUnavailable: the kernel lacks something. The
// caller closes the table, which leaves the kernel's as it is.
func Open(cfg Config) (*Table, error) {
	if cfg.Table == "" {
		cfg.Table = network.Prefix
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := try(cfg); err != nil && cfg.AntiSpoofing {
		cfg.AntiSpoofing = false
		cfg.Log.Warn("pods can send from others' addresses: this kernel has no nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE)", "error", err)
	}
	if err := try(cfg); err != nil {
		return nil, fmt.Errorf("try table of nftables (it needs root and the kernel's nf_tables with nat, masq, ct and fib_inet): %w: %w",
			errdefs.ErrUnavailable, err)
	}
	t := &Table{
		cfg:      cfg,
		queue:    newQueue(),
		kernel:   kernel{schema: newSchema(cfg.Table, cfg), stale: true, port: &atomic.Uint32{}},
		book:     newBook(cfg.AntiSpoofing),
		networks: networkElements(nil, nil),
	}
	return t, nil
}

// try tells whether this kernel can hold such a table.
func try(cfg Config) error {
	trial := kernel{schema: newSchema(cfg.Table+"-probe", cfg), port: &atomic.Uint32{}}
	return errors.Join(trial.probe(), trial.hangUp())
}

// Close closes the connection to the kernel. Later calls open it again.
func (t *Table) Close() error {
	return t.speak(context.Background(), t.kernel.hangUp)
}

// speak calls do when it is this caller's turn to speak to the kernel.
func (t *Table) speak(ctx context.Context, do func() error) error {
	select {
	case <-t.queue.turn:
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier change of the nftables table: %w", context.Cause(ctx))
	}
	defer func() { t.queue.turn <- struct{}{} }()
	return do()
}

// SetNetworks makes pods the networks whose members are masqueraded when they
// leave, unless they go to pods, noMasquerade, multicast or IPv6 link-local.
// Overlapping prefixes are fine.
func (t *Table) SetNetworks(ctx context.Context, pods, noMasquerade []netip.Prefix) error {
	for _, p := range slices.Concat(pods, noMasquerade) {
		if !p.IsValid() || p.Addr().Is4In6() {
			return fmt.Errorf("set networks of nftables table: %v is not a plain prefix: %w", p, errdefs.ErrInvalidArgument)
		}
	}
	return t.speak(ctx, func() error {
		networks := networkElements(pods, noMasquerade)
		t.mu.Lock()
		t.networks = networks
		t.mu.Unlock()
		var sets []string
		for _, f := range families() {
			sets = append(sets, f.pods, f.noMasq)
		}
		// Not even a stale table is rebuilt for this: at start the elements of
		// pods that are not restored yet would go.
		if t.kernel.refill(sets, networks) == nil {
			return nil
		}
		return t.rebuild()
	})
}

// Reserve makes the pod the owner of host ports, in place of those it has, in
// memory alone. The first address of each family is where they lead to; a host
// IP of another family is left out. Errors: ErrAlreadyExists names the pod that
// has a port; ErrInvalidArgument for an unknown protocol or port zero. On error
// the pod keeps what it has.
func (t *Table) Reserve(podID string, pod Ports) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.book.reserve(podID, pod); err != nil {
		return fmt.Errorf("reserve host ports for pod %s: %w", podID, err)
	}
	return nil
}

// Publish makes the host ports that the pod has reserved lead to it, and then
// makes the kernel forget UDP flows to them that lead elsewhere. It is
// idempotent. A pod without reserved ports has nothing to publish.
func (t *Table) Publish(ctx context.Context, podID string) error {
	var binds []bind
	err := t.submit(ctx, func() (del, add []element) {
		res := t.book.pods[podID]
		if res == nil {
			return nil, nil
		}
		binds = res.binds
		return res.publish()
	})
	if err != nil {
		return fmt.Errorf("publish host ports of pod %s: %w", podID, err)
	}
	t.forget(binds, true)
	return nil
}

// Unpublish removes the pod's host ports from the kernel and gives them up. It
// is idempotent, and does not end with ctx. On error the pod still has the
// ports, until a later call succeeds.
func (t *Table) Unpublish(ctx context.Context, podID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	var binds []bind
	err := t.submit(ctx, func() (del, add []element) {
		res := t.book.pods[podID]
		if res == nil {
			return nil, nil
		}
		del, res.live, binds = res.live, nil, res.binds
		return del, nil
	})
	if err != nil {
		return fmt.Errorf("remove host ports of pod %s: %w", podID, err)
	}
	t.mu.Lock()
	t.book.release(podID)
	t.mu.Unlock()
	t.forget(binds, false)
	return nil
}

// Restore makes memory and the kernel hold exactly the host ports of these pods,
// by their ids, in one transaction. The networks stay those of SetNetworks. Of
// two pods that claim one port the first in the order of ids gets it, and the
// error names both (ErrAlreadyExists); everything else is done all the same.
func (t *Table) Restore(ctx context.Context, pods map[string]Ports) error {
	restored := newBook(t.kernel.schema.beside != nil)
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(pods)) {
		if err := restored.reserve(id, pods[id]); err != nil {
			errs = append(errs, fmt.Errorf("restore host ports of pod %s: %w", id, err))
			rest := pods[id]
			rest.Ports = nil
			errs = append(errs, restored.reserve(id, rest))
		}
		if res := restored.pods[id]; res != nil {
			res.publish()
		}
	}
	err := t.speak(ctx, func() error {
		t.mu.Lock()
		t.book = restored
		t.mu.Unlock()
		t.kernel.eraseBeside()
		return t.rebuild()
	})
	return errors.Join(append(errs, err)...)
}

// Check compares the kernel's table with memory and says what is missing, foreign
// or changed, and by whom if Watch has seen it. It reads all elements: call it now
// and then, not for each pod.
func (t *Table) Check(ctx context.Context) (found []network.Finding, err error) {
	err = t.speak(ctx, func() error {
		found, err = t.compare()
		if err == nil && len(found) == 0 {
			t.judge(nil)
		}
		found = append(found, t.checkHost()...)
		return err
	})
	who := t.last.get()
	if len(found) == 0 {
		t.last.put("")
	}
	if who != "" {
		for i := range found {
			found[i].Text += " (changed by " + who + ")"
		}
	}
	return found, err
}

// compare looks once more where something differs: reading while others change
// their tables may have been interrupted. The caller has the turn.
func (t *Table) compare() ([]network.Finding, error) {
	wanted := t.wanted()
	found, err := t.kernel.compare(wanted)
	if err == nil && len(found) > 0 {
		found, err = t.kernel.compare(wanted)
	}
	return found, err
}

// Ensure builds the table anew when Check would find something, or cannot look.
func (t *Table) Ensure(ctx context.Context) error {
	return t.speak(ctx, func() error {
		found, err := t.compare()
		if err == nil && len(found) == 0 {
			t.judge(nil)
			return t.openHost()
		}
		t.cfg.Log.Debug("building the nftables table anew", "table", t.kernel.schema.table.Name, "found", found, "error", err)
		return errors.Join(t.rebuild(), t.openHost())
	})
}

// Delete removes the kernel's table. Memory stays, so that Ensure makes it again.
func (t *Table) Delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	return t.speak(ctx, func() error {
		t.kernel.stale = true
		if err := errors.Join(t.kernel.erase(), t.kernel.closeChains()); err != nil {
			return fmt.Errorf("delete table %q of nftables: %w", t.kernel.schema.table.Name, err)
		}
		return nil
	})
}

// Healthy returns nil, or why the kernel's table was not as it should be when it
// was last written or looked at. It does not look itself.
func (t *Table) Healthy() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict
}
