package ops

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Table is all operations in flight. Its zero value works; it is safe for
// concurrent use, and its fields are set before the first.
type Table struct {
	// Observe is told how long each stage took and, as stage [Total], each operation
	// that succeeded. It may be nil.
	Observe func(verb, stage string, took time.Duration)
	// Span begins a span of tracing; end is called with the outcome. It may be nil.
	Span func(ctx context.Context, name string, s Subject) (inner context.Context, end func(error))

	mu      sync.Mutex // guards all below
	running map[*Op]struct{}
	holders map[any]*Op // by what is locked
}

// Total is the stage that stands for all of an operation.
const Total = "total"

// Subject names what an operation works on. Fields that do not apply are empty.
type Subject struct {
	Pod       string `json:"pod,omitempty"`       // namespace/name
	Container string `json:"container,omitempty"` // its name
	ID        string `json:"id,omitempty"`        // of the container, else of the pod
}

// String returns the names.
func (s Subject) String() string {
	switch {
	case s.Container == "":
		return s.Pod
	case s.Pod == "":
		return s.Container
	}
	return s.Pod + " " + s.Container
}

// Begin notes an operation; End takes it off. If ctx is of a [Call], it becomes
// what the call is doing.
func (t *Table) Begin(ctx context.Context, verb string, s Subject) *Op {
	o := &Op{table: t, verb: verb, began: time.Now(), subject: s, span: t.span(ctx, verb, s)}
	if call, ok := ctx.Value(callKey{}).(*Call); ok {
		call.op.Store(o)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		t.running, t.holders = map[*Op]struct{}{}, map[any]*Op{}
	}
	t.running[o] = struct{}{}
	return o
}

// Holder returns the operation that holds a lock, nil if none does.
func (t *Table) Holder(lock any) *Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holders[lock]
}

// hold notes who holds a lock, or with nil that nobody does.
func (t *Table) hold(lock any, o *Op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o == nil {
		delete(t.holders, lock)
		return
	}
	t.holders[lock] = o
}

// List returns all operations, the oldest first.
func (t *Table) List() []Operation {
	t.mu.Lock()
	all := make([]*Op, 0, len(t.running))
	for o := range t.running {
		all = append(all, o)
	}
	t.mu.Unlock()
	list := make([]Operation, 0, len(all))
	for _, o := range all {
		list = append(list, o.Now())
	}
	slices.SortFunc(list, func(a, b Operation) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Verb, b.Verb))
	})
	return list
}

// span is where the spans of an operation's stages belong.
type span struct {
	ctx context.Context
	end func(error)
}

func (t *Table) span(ctx context.Context, name string, s Subject) span {
	if t.Span == nil {
		return span{ctx, func(error) {}}
	}
	inner, end := t.Span(ctx, name, s)
	return span{inner, end}
}
