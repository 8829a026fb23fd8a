package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	perTurn = 20                     // pods of a turn
	edge    = 50                     // pods at the beginning and at the end of many
	rest    = 500 * time.Millisecond // before a turn: what the last one left is freed
)

// ways are the numbers of calls at a time, with what they add to a key.
var ways = []struct {
	atATime int
	infix   string
}{{1, ""}, {10, "ten_"}}

// turns measures the calls, one and ten at a time, in turns of all runtimes.
func turns(ctx context.Context, r report, targets []*target, n int) error {
	samples := map[string][]time.Duration{}
	for turn := range n + 1 {
		progress("turn %d of %d", turn, n)
		if turn == 1 {
			clear(samples) // the first turn warmed up: images, binaries, caches
		}
		for _, t := range targets {
			if err := oneTurn(ctx, samples, t); err != nil {
				return err
			}
		}
	}
	for key, times := range samples {
		r.percentiles(key, times)
	}
	return nil
}

// oneTurn is one runtime's turn, in all ways.
func oneTurn(ctx context.Context, samples map[string][]time.Duration, t *target) error {
	for _, way := range ways {
		if err := oneWay(ctx, samples, t, way.atATime, t.name+"_"+way.infix); err != nil {
			return err
		}
	}
	return nil
}

// oneWay runs, stops and removes the pods of a turn and adds the times to
// samples, by prefix and verb. Under "wall" is how long the running took in all.
func oneWay(ctx context.Context, samples map[string][]time.Duration, t *target, atATime int, prefix string) error {
	if err := pause(ctx, rest); err != nil {
		return err
	}
	start := time.Now()
	ids, times, err := t.each(ctx, runPod, t.names(perTurn), atATime)
	if err != nil {
		return err
	}
	wall := time.Since(start)
	stop, remove, err := t.end(ctx, ids, atATime)
	if err != nil {
		return err
	}
	add := func(v verb, times ...time.Duration) {
		key := prefix + string(v)
		samples[key] = append(samples[key], times...)
	}
	add(runPod, times...)
	add(stopPod, stop...)
	add(removePod, remove...)
	add("wall", wall)
	return nil
}

// crowds runs many pods of each runtime that exist at once, one after another,
// weighs them, and takes them down ten at a time. The smallest crowd comes first,
// since the kernel is long at freeing what a large one leaves.
func crowds(ctx context.Context, r report, targets []*target) error {
	bySize := slices.SortedFunc(slices.Values(targets), func(a, b *target) int { return a.many - b.many })
	for _, t := range bySize {
		progress("%d pods of %s", t.many, t.name)
		if err := crowd(ctx, r, t); err != nil {
			return err
		}
	}
	return nil
}

func crowd(ctx context.Context, r report, t *target) error {
	before, err := t.weigh(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	ids, times, err := t.each(ctx, runPod, t.names(t.many), 1)
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := t.weigh(ctx)
	if err != nil {
		return err
	}
	prefix := t.name + "_many_"
	r[prefix+"pods"] = float64(t.many)
	r[prefix+"pods_per_second"] = float64(t.many) / took.Seconds()
	r.percentiles(prefix+string(runPod), times)
	if t.many >= 2*edge {
		r[prefix+"first_50_p50_ms"] = millis(percentile(times[:edge], 50))
		r[prefix+"last_50_p50_ms"] = millis(percentile(times[t.many-edge:], 50))
	}
	r[t.name+"_idle_pss_kib"] = before.pss
	r[t.name+"_pss_per_pod_kib"] = (after.pss - before.pss) / float64(t.many)
	r[t.name+"_kernel_per_pod_kib"] = (after.kernel - before.kernel) / float64(t.many)
	_, _, err = t.end(ctx, ids, ways[1].atATime)
	return err
}

// pause waits, for the host and not for a program, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// progress tells on the side what goes on.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
