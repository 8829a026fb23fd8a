package engine

import (
	"context"
	"sync"

	"github.com/crib-runtime/crib/sandbox/image"
)

// pulls are the downloads that run. Who asks for what is already on its way
// waits for that one.
type pulls struct {
	mu      sync.Mutex // guards running, and the waiters of each
	running map[pullKey]*pull
	work    sync.WaitGroup
}

// pullKey makes pulls equal. Other credentials may see another image, or none.
type pullKey struct {
	ref  string
	auth image.Auth
}

// pull is one download.
type pull struct {
	done    chan struct{} // closed when img and err are set
	img     image.Image
	err     error
	waiters int
	cancel  context.CancelFunc
}

// do returns what work returns, or ctx's error when that ends first. Work goes
// on for as long as somebody waits for it.
func (p *pulls) do(ctx context.Context, key pullKey, work func(context.Context) (image.Image, error)) (image.Image, error) {
	if err := ctx.Err(); err != nil {
		return image.Image{}, err
	}
	one := p.join(ctx, key, work)
	defer p.leave(key, one)
	select {
	case <-one.done:
		return one.img, one.err
	case <-ctx.Done():
		return image.Image{}, ctx.Err()
	}
}

func (p *pulls) join(ctx context.Context, key pullKey, work func(context.Context) (image.Image, error)) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.running[key]; one != nil {
		one.waiters++
		return one
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one := &pull{done: make(chan struct{}), waiters: 1, cancel: cancel}
	if p.running == nil {
		p.running = map[pullKey]*pull{}
	}
	p.running[key] = one
	p.work.Go(func() {
		one.img, one.err = work(ctx)
		p.forget(key, one)
		close(one.done)
	})
	return one
}

// leave ends the download when nobody waits any more.
func (p *pulls) leave(key pullKey, one *pull) {
	p.mu.Lock()
	one.waiters--
	last := one.waiters == 0
	if last && p.running[key] == one {
		delete(p.running, key) // who comes now is not to join what ends
	}
	p.mu.Unlock()
	if last {
		one.cancel()
	}
}

func (p *pulls) forget(key pullKey, one *pull) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[key] == one {
		delete(p.running, key)
	}
}

// close ends all downloads and returns when they have ended.
func (p *pulls) close() {
	p.mu.Lock()
	for _, one := range p.running {
		one.cancel()
	}
	p.mu.Unlock()
	p.work.Wait()
}
