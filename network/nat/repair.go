package nat

import (
	"fmt"
	"slices"
)

// change takes elements out of the table and puts others in, or, if that fails,
// makes the table anew: whatever is wrong with it, memory already holds the
// result. The caller has the turn.
func (t *Table) change(del, add []element) error {
	if !t.kernel.stale {
		err := t.kernel.change(del, add)
		if err == nil {
			t.judge(nil)
			return nil
		}
		t.cfg.Log.Warn("nftables table is not as it was left, building it anew", "table", t.kernel.schema.table.Name, "error", err)
	}
	return t.rebuild()
}

// rebuild makes the table exactly what memory holds. The caller has the turn.
func (t *Table) rebuild() error {
	wanted := t.wanted()
	err := t.kernel.rebuild(wanted)
	if err != nil && unknown(err) {
		// Whether it was made or not, the second attempt ends in the same state.
		err = t.kernel.rebuild(wanted)
	}
	if err != nil {
		err = fmt.Errorf("build table %q of nftables: %w", t.kernel.schema.table.Name, err)
	}
	t.judge(err)
	return err
}

// judge notes the outcome of the last look at the kernel.
func (t *Table) judge(err error) {
	t.kernel.stale = err != nil
	t.mu.Lock()
	t.verdict = err
	t.mu.Unlock()
}

// wanted returns all elements that the table should have.
func (t *Table) wanted() []element {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(t.networks, t.book.live())
}
