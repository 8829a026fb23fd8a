package stream

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	tokenLife = time.Minute
	maxTokens = 1000
)

// tokens keeps what clients asked for until they come for it. It is safe for
// concurrent use.
type tokens struct {
	mu      sync.Mutex // guards waiting
	waiting map[string]ticket
}

// ticket is something that waits for its client.
type ticket struct {
	what    any
	expires time.Time
}

// put returns a new token for something. errdefs.ErrResourceExhausted is for
// more than a thousand within a minute that nobody came for.
func (t *tokens) put(what any) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if len(t.waiting) >= maxTokens {
		for token, ticket := range t.waiting {
			if now.After(ticket.expires) {
				delete(t.waiting, token)
			}
		}
	}
	if len(t.waiting) >= maxTokens {
		return "", fmt.Errorf("handing out a URL: %d were not used within %s, try again later: %w", maxTokens, tokenLife, errdefs.ErrResourceExhausted)
	}
	token := rand.Text()
	t.waiting[token] = ticket{what: what, expires: now.Add(tokenLife)}
	return token, nil
}

// take returns what a token stands for, once; nil if it stands for nothing (any more).
func (t *tokens) take(token string) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	ticket := t.waiting[token]
	delete(t.waiting, token)
	if time.Now().After(ticket.expires) {
		return nil
	}
	return ticket.what
}
