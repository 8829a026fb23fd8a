package sandbox

import (
	"context"
	"sync"
)

// KeyLock is a mutex for each key. The zero value works, and keys that nobody
// holds or waits for take no memory. It must not be copied.
type KeyLock[K comparable] struct {
	mu      sync.Mutex // guards holders
	holders map[K]*holder
}

type holder struct {
	token chan struct{} // holds one token while nobody has the lock
	users int           // the owner and those who wait
}

// Lock waits for the key until ctx ends and returns its unlock, which is called once.
func (l *KeyLock[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	h := l.enter(key)
	select {
	case <-h.token:
		return func() { h.token <- struct{}{}; l.leave(key, h) }, nil
	case <-ctx.Done():
		l.leave(key, h)
		return nil, ctx.Err()
	}
}

func (l *KeyLock[K]) enter(key K) *holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holders[key]
	if h == nil {
		h = &holder{token: make(chan struct{}, 1)}
		h.token <- struct{}{}
		if l.holders == nil {
			l.holders = map[K]*holder{}
		}
		l.holders[key] = h
	}
	h.users++
	return h
}

func (l *KeyLock[K]) leave(key K, h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(l.holders, key)
	}
}
