package nat

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// queue is the line of those who want to change the table. Who has the turn changes
// it for all who wait with a small change, in one transaction: pods that start at
// the same time would else wait for each other's.
type queue struct {
	turn chan struct{} // holds one token; who has taken it may use kernel and change what is live in the book

	mu      sync.Mutex // guards waiting
	waiting []*request
}

// request is a small change.
type request struct {
	prepare func() (del, add []element) // called with Table's mutex by who has the turn
	done    chan error                  // holds the outcome
}

func newQueue() *queue {
	q := &queue{turn: make(chan struct{}, 1)}
	q.turn <- struct{}{}
	return q
}

func (q *queue) add(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
}

// remove reports whether the request was still waiting.
func (q *queue) remove(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// take returns all that wait.
func (q *queue) take() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting = nil
	return all
}

// submit makes a small change, alone or with others', and waits for it. It gives up
// when ctx ends before somebody has begun with it.
func (t *Table) submit(ctx context.Context, prepare func() (del, add []element)) error {
	r := &request{prepare: prepare, done: make(chan error, 1)}
	t.queue.add(r)
	select {
	case <-t.queue.turn:
		t.serve()
		t.queue.turn <- struct{}{}
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if t.queue.remove(r) {
			return fmt.Errorf("wait for an earlier change of the nftables table: %w", context.Cause(ctx))
		}
	}
	return <-r.done
}

// serve makes the changes of all who wait. The caller has the turn.
func (t *Table) serve() {
	var del, add []element
	all := t.queue.take()
	t.mu.Lock()
	for _, r := range all {
		out, in := r.prepare()
		del, add = append(del, out...), append(add, in...)
	}
	t.mu.Unlock()
	err := t.change(del, add)
	for _, r := range all {
		r.done <- err
	}
}
