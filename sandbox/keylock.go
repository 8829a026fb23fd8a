package sandbox

import (
	"context"
	"sync"
)

// keylock is a mutex for each key; waiting honours a context. The zero value works.
type keylock struct {
	mu      sync.Mutex // guards holders
	holders map[Key]*holder
}

type holder struct {
	token chan struct{} // holds one token while nobody has the lock
	users int           // the owner and those who wait
}

// lock waits for the key and returns its unlock.
func (l *keylock) lock(ctx context.Context, key Key) (func(), error) {
	h := l.enter(key)
	select {
	case <-h.token:
		return func() { h.token <- struct{}{}; l.leave(key, h) }, nil
	case <-ctx.Done():
		l.leave(key, h)
		return nil, ctx.Err()
	}
}

func (l *keylock) enter(key Key) *holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holders[key]
	if h == nil {
		h = &holder{token: make(chan struct{}, 1)}
		h.token <- struct{}{}
		if l.holders == nil {
			l.holders = map[Key]*holder{}
		}
		l.holders[key] = h
	}
	h.users++
	return h
}

func (l *keylock) leave(key Key, h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(l.holders, key)
	}
}
