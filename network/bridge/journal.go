package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crib-runtime/crib/network"
)

const (
	// free is how many repairs of one thing in a row are done at once.
	free = 5
	// quiet is the time after a repair that makes up for one.
	quiet = 10 * time.Second
	// longest is the longest time between two repairs of one thing.
	longest = 5 * time.Minute
	// remembered is how many repairs are kept for people.
	remembered = 100
)

// journal remembers what was repaired and what is still wrong, and holds repairs
// back that are undone again and again.
type journal struct {
	mu     sync.Mutex // guards all
	tries  map[key]try
	open   map[key]network.Finding
	last   []network.Repair // the newest last
	counts map[string]uint64
}

// key names a thing that is repaired.
type key struct{ kind, object string }

// try is how often one thing was repaired.
type try struct {
	count int // less those that quiet times made up for
	total int
	first time.Time
	last  time.Time
}

func newJournal() journal {
	return journal{tries: map[key]try{}, open: map[key]network.Finding{}, counts: map[string]uint64{}}
}

// wait is how long after the last repair the next one may come.
func (t try) wait() time.Duration {
	if t.count < free {
		return 0
	}
	return min(longest, time.Second<<min(t.count-free, 20))
}

// at returns the try as it is at a time: quiet times make up for repairs.
func (t try) at(now time.Time) try {
	rested := now.Sub(t.last) - t.wait()
	t.count = max(0, t.count-int(max(0, rested)/quiet))
	return t
}

// due returns when a thing may be repaired, which may be in the past.
func (j *journal) due(k key, now time.Time) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tries[k].at(now)
	return t.last.Add(t.wait())
}

// note remembers a repair, and counts it if it was not in vain.
func (j *journal) note(k key, r network.Repair) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tries[k].at(r.At)
	if t.count == 0 {
		t.first = r.At
	}
	t.count, t.total, t.last = t.count+1, t.total+1, r.At
	j.tries[k] = t
	j.last = append(j.last, r)
	j.last = slices.Clone(j.last[max(0, len(j.last)-remembered):])
	if r.Error == "" {
		j.counts[k.kind]++
	}
	for old, t := range j.tries { // those of pods that are gone
		if t.at(r.At).count == 0 {
			delete(j.tries, old)
		}
	}
}

// leave notes what is wrong and stays so, of the kinds that were looked at. It
// returns what was not known yet.
func (j *journal) leave(looked func(kind string) bool, found map[key]network.Finding) (news []network.Finding) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k, f := range found {
		if _, known := j.open[k]; !known {
			news = append(news, f)
		}
	}
	maps.DeleteFunc(j.open, func(k key, _ network.Finding) bool { return looked(k.kind) })
	maps.Copy(j.open, found)
	return news
}

// findings returns what is wrong at present.
func (j *journal) findings() []network.Finding {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedFunc(maps.Values(j.open), func(a, b network.Finding) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Object, b.Object))
	})
}

// repairs returns the last ones, the newest last, and how many there were of each kind.
func (j *journal) repairs() ([]network.Repair, map[string]uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.last), maps.Clone(j.counts)
}

// undone says that a thing is changed as often as it is repaired.
func (j *journal) undone(k key, now time.Time) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tries[k].at(now)
	return fmt.Sprintf("somebody changes it as often as it is repaired (%d times since %s); the next repair is at %s",
		t.count, t.first.Format(time.TimeOnly), t.last.Add(t.wait()).Format(time.TimeOnly))
}
