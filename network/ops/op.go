package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Op is an operation in flight. It is safe for concurrent use; its methods may be
// called on nil.
type Op struct {
	table *Table
	verb  string
	began time.Time
	span  span

	mu      sync.Mutex // guards all below
	subject Subject
	stages  []Stage // those that run have no Took yet
	waits   any     // the lock that it waits for, nil for none
}

// Stage is a step of an operation. Took is 0 while it goes on.
type Stage struct {
	Name string        `json:"name"`
	At   time.Duration `json:"at,omitempty"` // when it began, since the operation did; nanoseconds in JSON
	Took time.Duration `json:"took"`
}

// Named tells the id, once it is known.
func (o *Op) Named(id string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subject.ID = id
}

// Stage begins a stage. Several can go on at once; done is called once.
func (o *Op) Stage(name string) (done func()) {
	if o == nil {
		return func() {}
	}
	s := o.table.span(o.span.ctx, name, o.of())
	began := time.Now()
	o.mu.Lock()
	i := len(o.stages)
	o.stages = append(o.stages, Stage{Name: name, At: began.Sub(o.began)})
	o.mu.Unlock()
	return func() {
		took := max(time.Since(began), 1)
		s.end(nil)
		o.mu.Lock()
		o.stages[i].Took = took
		o.mu.Unlock()
		o.table.observe(o.verb, name, took)
	}
}

func (o *Op) of() Subject {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.subject
}

func (t *Table) observe(verb, stage string, took time.Duration) {
	if t.Observe != nil {
		t.Observe(verb, stage, took)
	}
}

// End takes the operation off its table.
func (o *Op) End(err error) {
	if o == nil {
		return
	}
	o.span.end(err)
	o.table.mu.Lock()
	delete(o.table.running, o)
	o.table.mu.Unlock()
	if err == nil {
		o.table.observe(o.verb, Total, time.Since(o.began))
	}
}

// Timeline returns the stages that are over, and the time since the beginning as
// stage [Total].
func (o *Op) Timeline() []Stage {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	over := slices.DeleteFunc(slices.Clone(o.stages), func(s Stage) bool { return s.Took == 0 })
	return append(over, Stage{Name: Total, Took: time.Since(o.began)})
}

// Lock waits for a lock, as a stage. The wait ends a little before ctx's deadline,
// with an error that tells what the holder is doing. The unlock is called once,
// before End.
func (o *Op) Lock(ctx context.Context, lock any, wait func(context.Context) (unlock func(), err error)) (func(), error) {
	if o == nil {
		return wait(ctx)
	}
	defer o.Stage("lock")()
	ctx, cancel := early(ctx)
	defer cancel()
	o.wait(lock)
	defer o.wait(nil)
	start := time.Now()
	unlock, err := wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("waited %s for %s: %w", rounded(time.Since(start)), o.table.Holder(lock).Now(), err)
	}
	o.table.hold(lock, o)
	return func() {
		o.table.hold(lock, nil)
		unlock()
	}, nil
}

func (o *Op) wait(lock any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = lock
}

// early returns a context that ends so long before its parent's deadline that an
// answer still reaches the client: a tenth of the time left, at most a second.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, time.Second)))
}

// Operation is what an operation is like at a moment.
type Operation struct {
	Verb     string        `json:"verb"` // as CRI calls it
	Subject                // its fields are those of the operation
	Began    time.Time     `json:"began"`
	Age      time.Duration `json:"age"`                // nanoseconds in JSON, as all times here
	At       []Stage       `json:"at"`                 // stages that go on; Took is the time up to now
	Done     []Stage       `json:"done"`               // stages that are over
	WaitsFor string        `json:"waitsFor,omitempty"` // who holds the lock that it waits for, and what that does
}

// Now returns what the operation is like now; nil's has no verb.
func (o *Op) Now() Operation {
	if o == nil {
		return Operation{}
	}
	o.mu.Lock()
	now := Operation{Verb: o.verb, Subject: o.subject, Began: o.began, Age: time.Since(o.began), At: []Stage{}, Done: []Stage{}}
	for _, s := range o.stages {
		if s.Took > 0 {
			now.Done = append(now.Done, s)
			continue
		}
		s.Took = now.Age - s.At
		now.At = append(now.At, s)
	}
	waits := o.waits
	o.mu.Unlock()
	if waits == nil {
		return now
	}
	if holder := o.table.Holder(waits); holder != o { // it may have just got it
		now.WaitsFor = holder.Now().String()
	}
	return now
}

// String tells it in a sentence: what, how long, and at which stage or behind whom.
func (o Operation) String() string {
	if o.Verb == "" {
		return "a call that has just ended"
	}
	head := fmt.Sprintf("%s of %s (%s)", o.Verb, o.Subject, rounded(o.Age))
	if o.WaitsFor != "" {
		return head + ", which waits for " + o.WaitsFor
	}
	var at []string
	for _, s := range o.At {
		at = append(at, fmt.Sprintf("%s (%s)", s.Name, rounded(s.Took)))
	}
	if len(at) == 0 {
		return head
	}
	return head + ", which is at: " + strings.Join(at, ", ")
}

// rounded is a time for people.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second / 10)
}
