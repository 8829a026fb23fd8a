package nstest

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// settle is how long Lab waits for the kernel to finish what it tears down in
// the background. Only a test that leaks waits that long.
const settle = 10 * time.Second

// Lab skips t unless it runs in namespaces of its own (see [Main]), and makes it
// fail if it leaves something behind: links, addresses, routes, rules, mounts, the
// nft ruleset where nft is on PATH, processes, descriptors, goroutines, or threads
// in another network namespace. Cleanups that t registered after Lab run before
// the check. A test that calls Lab must not be parallel to others.
func Lab(t testing.TB) {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("needs root and namespaces of its own: nstest.Main in TestMain, and no -short")
	}
	before, err := observe()
	if err != nil {
		t.Fatal("observing before the test:", err)
	}
	t.Cleanup(func() {
		// The test's own context is cancelled by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), settle)
		defer cancel()
		if diff := waitFor(ctx, before); len(diff) > 0 {
			t.Errorf("the test left the machine changed (+ new, - missing):\n%s", strings.Join(diff, "\n"))
		}
	})
}

// waitFor compares until nothing differs or ctx ends, and returns the last difference.
func waitFor(ctx context.Context, before world) []string {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		diff := compare(before)
		if len(diff) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return diff
		case <-tick.C:
		}
	}
}

// compare returns what differs now.
func compare(before world) []string {
	now, err := observe()
	if err != nil {
		return []string{"observing after the test: " + err.Error()}
	}
	return before.diff(now)
}

// world counts what there is, by a line that describes it.
type world map[string]int

// diff lists what now has more (+) or less (-) of. Goroutines that ended are no
// difference: one of the first look itself may have been among them.
func (w world) diff(now world) []string {
	var lines []string
	keys := maps.Clone(w)
	maps.Copy(keys, now)
	for _, line := range slices.Sorted(maps.Keys(keys)) {
		switch {
		case now[line] > w[line]:
			lines = append(lines, "+ "+line)
		case now[line] < w[line] && !strings.HasPrefix(line, "goroutine "):
			lines = append(lines, "- "+line)
		}
	}
	return lines
}
