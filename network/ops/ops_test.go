package ops_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crib-runtime/crib/network/ops"
)

var web = ops.Subject{Pod: "default/web", ID: "abc"}

// free is a lock that nobody holds, taken one that somebody does.
func free(context.Context) (func(), error) { return func() {}, nil }
func taken(ctx context.Context) (func(), error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAnOperationIsListedWithItsStagesUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &ops.Table{}
		op := table.Begin(t.Context(), "RunPodSandbox", ops.Subject{Pod: "default/web"})
		op.Named("abc")
		done := op.Stage("plan")
		time.Sleep(time.Millisecond)
		done()
		defer op.Stage("network bridge")()
		defer op.Stage("files")()
		time.Sleep(2 * time.Second)
		list := table.List()
		const want = "RunPodSandbox of default/web (2s), which is at: network bridge (2s), files (2s)"
		if len(list) != 1 || list[0].String() != want || list[0].Subject != web || list[0].Done[0].Name != "plan" {
			t.Errorf("got %v, want %s", list, want)
		}
		op.End(nil)
		if left := table.List(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestWhoWaitsIsToldWhatTheHolderDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &ops.Table{}
		holder := table.Begin(t.Context(), "StopPodSandbox", web)
		unlock, err := holder.Lock(t.Context(), "web", free)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Stage("detach network")()
		time.Sleep(28 * time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		waiter := table.Begin(ctx, "RunPodSandbox", web)
		failed := make(chan error)
		go func() {
			_, err := waiter.Lock(ctx, "web", taken)
			failed <- err
		}()
		time.Sleep(time.Second)
		const want = "RunPodSandbox of default/web (1s), which waits for StopPodSandbox of default/web (29s), which is at: detach network (29s)"
		if got := waiter.Now().String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		err = <-failed
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waited 11s for StopPodSandbox of default/web (39s), which is at: detach network") {
			t.Errorf("got %v", err)
		}
		if ctx.Err() != nil {
			t.Error("the error comes after the caller's deadline")
		}
		unlock()
		if table.Holder("web") != nil {
			t.Error("a lock that was given back has a holder")
		}
	})
}

func TestStagesAreObservedAndTheWholeIfItSucceeded(t *testing.T) {
	var seen []string
	table := &ops.Table{Observe: func(verb, stage string, _ time.Duration) { seen = append(seen, verb+" "+stage) }}
	good, bad := table.Begin(t.Context(), "good", web), table.Begin(t.Context(), "bad", web)
	good.Stage("plan")()
	bad.Stage("plan")()
	timeline := good.Timeline()
	good.End(nil)
	bad.End(errors.New("no"))
	if want := []string{"good plan", "bad plan", "good total"}; !slices.Equal(seen, want) {
		t.Errorf("got %v, want %v", seen, want)
	}
	if len(timeline) != 2 || timeline[0].Name != "plan" || timeline[1].Name != ops.Total {
		t.Errorf("timeline %v", timeline)
	}
}

func TestACallKnowsWhatItLedTo(t *testing.T) {
	table := &ops.Table{}
	ctx, call := ops.WithCall(t.Context())
	if _, ok := call.Now(); ok {
		t.Error("a call that has led to nothing")
	}
	table.Begin(ctx, "StartContainer", ops.Subject{Pod: "default/web", Container: "main"})
	if now, ok := call.Now(); !ok || now.Verb != "StartContainer" || now.Subject.String() != "default/web main" {
		t.Errorf("got %v", now)
	}
}

func TestNobodysOperationCanBeAsked(t *testing.T) {
	var op *ops.Op
	op.Stage("anything")()
	op.Named("abc")
	unlock, err := op.Lock(t.Context(), "web", free)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	op.End(nil)
	if op.Timeline() != nil {
		t.Error("a timeline of nothing")
	}
}

// BenchmarkOperation is what noting it adds to the start of a pod: its stages, less
// the work.
func BenchmarkOperation(b *testing.B) {
	table := &ops.Table{Observe: func(string, string, time.Duration) {}}
	b.ReportAllocs()
	for b.Loop() {
		op := table.Begin(b.Context(), "RunPodSandbox", web)
		unlock, err := op.Lock(b.Context(), "web", free)
		if err != nil {
			b.Fatal(err)
		}
		for _, stage := range []string{"plan", "record", "namespaces", "network", "files"} {
			op.Stage(stage)()
		}
		op.Timeline()
		unlock()
		op.End(nil)
	}
}
