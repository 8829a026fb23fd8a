package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network"
)

// Attach runs ADD for each attachment that has no result yet, in parallel, and
// returns all of them with addresses, gateways, MAC and the host's interface.
// Before the first plugin is run it saves that it will be. One whose earlier ADD
// was interrupted is removed first. When an ADD fails, all attachments are
// removed and no error of that hides the first.
func (n *Networks) Attach(
	ctx context.Context, pod network.Pod, attachments []network.Attachment, save network.Save,
) ([]network.Attachment, error) {
	all, err := jobs(pod, attachments)
	if err != nil {
		return nil, fmt.Errorf("attach networks: %w", err)
	}
	todo := slices.DeleteFunc(slices.Clone(all), func(j job) bool { return j.detail.Result != nil })
	if len(todo) == 0 {
		return attachments, nil
	}
	if err := n.undoInterrupted(ctx, todo); err != nil {
		return nil, err
	}
	attached := slices.Clone(attachments)
	if err := markStarted(todo, attached); err != nil {
		return nil, err
	}
	if err := save(attached); err != nil {
		return nil, fmt.Errorf("record that networks are attached: %w", err)
	}
	if err := n.addAll(ctx, todo, attached); err != nil {
		return nil, errors.Join(err, n.delAll(ctx, all))
	}
	return attached, nil
}

// Detach runs DEL for the attachments, the last one first, with the configuration
// that they hold, whatever became of ctx. It needs neither the namespace nor the
// plugin cache. It tries all and joins the errors; the caller tries again later.
func (n *Networks) Detach(ctx context.Context, pod network.Pod, attachments []network.Attachment) error {
	all, err := jobs(pod, attachments)
	return errors.Join(err, n.delAll(ctx, all))
}

// undoInterrupted removes what an ADD without an answer may have left.
func (n *Networks) undoInterrupted(ctx context.Context, todo []job) error {
	var interrupted []job
	for _, j := range todo {
		if j.detail.Started {
			interrupted = append(interrupted, j)
		}
	}
	return n.delAll(ctx, interrupted)
}

// markStarted notes in the attachments that their plugins will be run.
func markStarted(todo []job, attachments []network.Attachment) error {
	for i := range todo {
		todo[i].detail.Started = true
		raw, err := todo[i].detail.encode()
		if err != nil {
			return fmt.Errorf("record network %s: %w", todo[i].list.Name, err)
		}
		attachments[todo[i].at].Detail = raw
	}
	return nil
}

// addAll runs ADD for all jobs side by side and fills in their attachments.
func (n *Networks) addAll(ctx context.Context, todo []job, attachments []network.Attachment) error {
	errs := make([]error, len(todo))
	var running sync.WaitGroup
	for i, j := range todo {
		running.Go(func() { errs[i] = n.add(ctx, j, &attachments[j.at]) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (n *Networks) add(ctx context.Context, j job, a *network.Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	running, err := n.hold(j.rt)
	if err == nil {
		var result types.Result
		result, err = n.cfg.plugins(running).AddNetworkList(ctx, j.list, j.rt)
		err = errors.Join(err, letGo(running))
		if err == nil {
			err = fill(a, j.detail, result)
		}
	}
	if err != nil {
		return fmt.Errorf("attach network %s as %s: %w", a.Network, a.Interface, err)
	}
	return nil
}

func (n *Networks) delAll(ctx context.Context, all []job) error {
	var errs []error
	for _, j := range slices.Backward(all) {
		if err := n.del(ctx, j); err != nil {
			errs = append(errs, fmt.Errorf("detach network %s from %s: %w", j.list.Name, j.rt.IfName, err))
		}
	}
	return errors.Join(errs...)
}

// del runs DEL of the plugins in reverse. It stops at the first that fails: to
// free an address while a port mapping still leads to it would be worse.
func (n *Networks) del(ctx context.Context, j job) error {
	if j.detail.Result == nil {
		n.awaitOrphan(ctx, j.rt)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Timeout)
	defer cancel()
	rt := *j.rt
	rt.NetNS = livingNamespace(rt.NetNS)
	inject := map[string]any{"name": j.list.Name, "cniVersion": j.list.CNIVersion}
	if previous := n.previous(j); previous != nil {
		inject["prevResult"] = previous
	}
	for _, plugin := range slices.Backward(j.list.Plugins) {
		conf, err := libcni.InjectConf(plugin, inject)
		if err != nil {
			return fmt.Errorf("plugin %s: %w", plugin.Network.Type, err)
		}
		if err := n.cni.DelNetwork(ctx, conf, &rt); err != nil {
			return fmt.Errorf("plugin %s: DEL: %w", plugin.Network.Type, err)
		}
	}
	return nil
}

// previous returns the result of ADD: the record's, else the plugin cache's, else
// nil, with which plugins must cope. Versions before 0.4.0 do not have it on DEL.
func (n *Networks) previous(j job) types.Result {
	if ok, err := version.GreaterThanOrEqualTo(j.list.CNIVersion, "0.4.0"); err != nil || !ok {
		return nil
	}
	if result, err := decodeResult(j.detail.Result, j.list.CNIVersion); err == nil {
		return result
	}
	// An empty or corrupt file is as good as none.
	result, err := n.cni.GetNetworkListCachedResult(j.list, j.rt)
	if err != nil {
		return nil
	}
	return result
}

// decodeResult reads a recorded result in the version that the conflist speaks.
func decodeResult(raw json.RawMessage, cniVersion string) (types.Result, error) {
	result, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, err
	}
	return result.GetAsVersion(cniVersion)
}

// livingNamespace returns path if a namespace is there, else "", with which the
// CNI specification lets DEL go on: what remains of the pin after it was removed
// would make some plugins fail for ever.
func livingNamespace(path string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil || int64(fs.Type) != unix.NSFS_MAGIC {
		return ""
	}
	return path
}
