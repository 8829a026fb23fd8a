package engine

import (
	"context"
	"sync"
)

// keyLock excludes holders of the same key from each other.
type keyLock struct {
	mu   sync.Mutex // guards held
	held map[string]*keyHolder
}

// keyHolder is one key that somebody holds or waits for.
type keyHolder struct {
	place chan struct{} // full while held
	users int           // holders and waiters
}

func newKeyLock() *keyLock {
	return &keyLock{held: make(map[string]*keyHolder)}
}

// lock waits for key until ctx ends; the caller calls unlock once.
func (k *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	h := k.held[key]
	if h == nil {
		h = &keyHolder{place: make(chan struct{}, 1)}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	select {
	case h.place <- struct{}{}:
		return func() { <-h.place; k.leave(key, h) }, nil
	case <-ctx.Done():
		k.leave(key, h)
		return nil, ctx.Err()
	}
}

// leave forgets a key that nobody wants any more.
func (k *keyLock) leave(key string, h *keyHolder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(k.held, key)
	}
}
