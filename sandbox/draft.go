package sandbox

import (
	"errors"
	"slices"
	"sync"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/ops"
)

// draft is the record of a pod that is being made, shared by the goroutines that
// make it.
type draft struct {
	m  *Manager
	op *ops.Op // nil for the repair of a pod that is Ready

	mu     sync.Mutex // guards record
	record Pod
}

// pod returns a copy of the record as it is now.
func (d *draft) pod() *Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.copyLocked()
}

func (d *draft) copyLocked() *Pod {
	pod := d.record
	pod.Attachments = slices.Clone(pod.Attachments)
	pod.Timeline = slices.Clone(pod.Timeline)
	return &pod
}

// set changes the draft in memory.
func (d *draft) set(f func(*Pod)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.record)
}

// change changes the draft and records it. The lock is held while the record is
// written, so that of two changes the later is on disk.
func (d *draft) change(f func(*Pod)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.record)
	return d.m.put(d.copyLocked())
}

// byDriver groups attachments by the driver that made them.
func byDriver(as []network.Attachment) map[string][]network.Attachment {
	groups := map[string][]network.Attachment{}
	for _, a := range as {
		groups[a.Driver] = append(groups[a.Driver], a)
	}
	return groups
}

// replace returns a change that puts a driver's attachments in the place of those
// it has, in the order of the interfaces.
func replace(driver string, as []network.Attachment) func(*Pod) {
	return func(p *Pod) {
		i := 0
		for k := range p.Attachments {
			if p.Attachments[k].Driver == driver && i < len(as) {
				p.Attachments[k] = as[i]
				i++
			}
		}
	}
}

// parallel runs all functions, waits for all of them and joins their errors.
func parallel(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
