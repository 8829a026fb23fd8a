package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/crib-runtime/crib/network"
)

// Restore removes attachments that this package made and no record names: those
// that the plugin cache has and held does not. The plugins keep their own state
// of the others. What cannot be removed is logged and stays for the next start,
// so that a plugin cannot keep the daemon from starting. The error is nil unless
// ctx ended or the cache cannot be read.
//
// held must be complete: a pod that is missing from it loses its network.
func (n *Networks) Restore(ctx context.Context, held []network.Held) error {
	cached, err := n.cni.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("read plugin cache in %s: %w", n.cfg.CacheDir, err)
	}
	named := make(map[string]bool)
	for _, h := range held {
		for _, a := range h.Attachments {
			named[h.Pod.ID+"/"+a.Interface] = true
		}
	}
	for _, c := range cached {
		if named[c.ContainerID+"/"+c.IfName] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sweep CNI networks: %w", err)
		}
		n.sweep(ctx, c)
	}
	return nil
}

// sweep removes one attachment by what the plugin cache has of it.
func (n *Networks) sweep(ctx context.Context, c *libcni.NetworkAttachment) {
	begin := time.Now()
	log := n.cfg.Log.With("pod", c.ContainerID, "network", c.Network, "interface", c.IfName)
	j, err := strayJob(c)
	if err == nil {
		err = n.del(ctx, j)
	}
	if err != nil {
		log.Warn("CNI network of an unknown pod not removed", "error", err)
		return
	}
	log.Info("CNI network of an unknown pod removed", "took", time.Since(begin))
}

func strayJob(c *libcni.NetworkAttachment) (job, error) {
	capabilities := make(map[string]json.RawMessage, len(c.CapabilityArgs))
	for name, value := range c.CapabilityArgs {
		raw, err := json.Marshal(value)
		if err != nil {
			return job{}, err
		}
		capabilities[name] = raw
	}
	raw, err := detail{Conflist: c.Config, Args: c.CniArgs, Capabilities: capabilities}.encode()
	if err != nil {
		return job{}, err
	}
	return newJob(network.Pod{ID: c.ContainerID, Netns: c.NetNS}, network.Attachment{Interface: c.IfName, Detail: raw})
}
