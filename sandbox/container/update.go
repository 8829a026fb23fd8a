package container

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
)

// noLimit is what a limit is that lifts an earlier one.
const noLimit = -1

// Update changes the limits of a created or running container. Fields that are
// zero stay as they are. The record echoes the result; what the kernel refuses, as
// less memory than is used, changes neither. Another state is
// errdefs.ErrFailedPrecondition.
func (m *Manager) Update(ctx context.Context, id string, change Resources) (err error) {
	op := m.beginKnown(ctx, "UpdateContainerResources", id)
	defer func() { op.End(err) }()
	c, unlock, err := m.claimKnown(ctx, op, id)
	if err != nil {
		return err
	}
	defer unlock()
	all := merge(c.Spec.Resources, change)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer cancel() // a caller who is gone must not leave limits that no record has
	switch c.State {
	case Running:
		part := touched(all, change)
		err = m.cfg.Inside.Update(ctx, id, Change{Limits: m.cfg.Limits(part), OOMScoreAdj: part.OOMScoreAdj})
	case Created:
		err = m.rebuild(ctx, c, all)
	default:
		err = fmt.Errorf("it is %s: %w", c.State, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return wrap("update the limits", c, err)
	}
	_, err = m.change(id, func(c *Container) { c.Spec.Resources = all })
	return err
}

// rebuild hands a created container to the engine again, with other resources. If
// they are refused it is handed over as it was, since it can still be started.
func (m *Manager) rebuild(ctx context.Context, c *Container, r Resources) error {
	img, err := m.cfg.Images.Image(ctx, c.ImageID)
	if err != nil {
		return err
	}
	changed := *c
	changed.Spec.Resources = r
	if err := m.cfg.Tasks.Delete(ctx, c.ID); err != nil {
		return err
	}
	if _, err = m.build(ctx, &changed, img); err == nil {
		return nil
	}
	_, again := m.build(ctx, c, img)
	return errors.Join(err, again)
}

// merge returns resources with the fields of change that are set.
func merge(r, change Resources) Resources {
	r.MemorySwap = swapFor(r, change)
	set(&r.CPUPeriod, change.CPUPeriod)
	set(&r.CPUQuota, change.CPUQuota)
	set(&r.CPUShares, change.CPUShares)
	set(&r.CPUSetCPUs, change.CPUSetCPUs)
	set(&r.CPUSetMems, change.CPUSetMems)
	set(&r.MemoryLimit, change.MemoryLimit)
	set(&r.OOMScoreAdj, change.OOMScoreAdj)
	r.HugepageLimit = joined(r.HugepageLimit, change.HugepageLimit)
	r.Unified = joined(r.Unified, change.Unified)
	return r
}

// swapFor returns the limit of memory and swap together after a change. One that
// names memory alone moves it along, so that as much swap is left as before: the
// kernel refuses a sum that is less than the memory.
func swapFor(r, change Resources) int64 {
	switch {
	case change.MemorySwap != 0:
		return change.MemorySwap
	case change.MemoryLimit == 0 || r.MemorySwap <= 0:
		return r.MemorySwap
	case change.MemoryLimit == noLimit:
		return noLimit
	case r.MemoryLimit > 0:
		return change.MemoryLimit + max(0, r.MemorySwap-r.MemoryLimit)
	}
	return max(r.MemorySwap, change.MemoryLimit)
}

// touched returns those of all resources that a change is about. What belongs
// together goes together: an OCI runtime takes a default for the period of a quota
// without one. The rest is not set again: the kernel might refuse today what it
// took once.
func touched(all, change Resources) Resources {
	part := Resources{OOMScoreAdj: change.OOMScoreAdj, HugepageLimit: change.HugepageLimit, Unified: change.Unified}
	if change.CPUPeriod != 0 || change.CPUQuota != 0 {
		part.CPUPeriod, part.CPUQuota = all.CPUPeriod, all.CPUQuota
	}
	part.CPUShares, part.CPUSetCPUs, part.CPUSetMems = change.CPUShares, change.CPUSetCPUs, change.CPUSetMems
	if change.MemoryLimit != 0 || change.MemorySwap != 0 {
		part.MemoryLimit, part.MemorySwap = all.MemoryLimit, all.MemorySwap
	}
	return part
}

func set[T comparable](field *T, value T) {
	var zero T
	if value != zero {
		*field = value
	}
}

// joined returns a new map of both, since records are not changed.
func joined[V any](a, b map[string]V) map[string]V {
	if len(b) == 0 {
		return a
	}
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return all
}
