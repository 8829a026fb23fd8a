package usage

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/counters"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/cgroup"
)

// layers has a layer of 7 bytes for each container but "bare".
type layers struct{ dir string }

func (l layers) LayersDir() string { return l.dir }

func (l layers) Layer(_ context.Context, id string, _ cgroup.Figure) (Layer, error) {
	if id == "bare" {
		return Layer{}, errors.New("no layer")
	}
	return Layer{Bytes: 7, At: time.Now()}, nil
}

// meter returns one whose cgroups of v1 are below a directory: /<parent>/<id>.
func meter(t *testing.T, dumps *int) (*Meter, string) {
	dir := t.TempDir()
	return NewMeter(Config{
		Root: dir, Layers: layers{dir}, Log: slog.New(slog.DiscardHandler),
		Path: func(pod *sandbox.Pod, id string) string { return filepath.Join("/", pod.Spec.CgroupParent, id) },
		Links: func() (map[string]counters.Counters, error) {
			*dumps++
			return map[string]counters.Counters{"host1": {RxBytes: 1, TxBytes: 2}}, nil
		},
	}), dir
}

func pod(parent string) *sandbox.Pod {
	return &sandbox.Pod{
		ID: "pod", Spec: sandbox.Spec{Key: sandbox.Key{UID: "1-2"}, CgroupParent: parent},
		Attachments: []network.Attachment{{Interface: "eth0", HostInterface: "host1"}, {Interface: "eth1"}},
	}
}

func TestAPodIsItsOwnCgroupOrTheSumOfItsContainers(t *testing.T) {
	var dumps int
	m, dir := meter(t, &dumps)
	for _, parent := range []string{"shared", "of1-2others", "pod1-2", "kubepods-pod1_2.slice"} {
		for id, usage := range map[string]string{"": "100", "a": "10", "b": "20"} {
			write(t, filepath.Join(dir, "memory", parent, id), "memory.usage_in_bytes", usage)
		}
	}
	for parent, want := range map[string]uint64{"shared": 30, "of1-2others": 30, "pod1-2": 100, "kubepods-pod1_2.slice": 100} {
		round := m.Round()
		var used []Container
		for _, id := range []string{"a", "b"} {
			u, err := round.Container(t.Context(), pod(parent), id)
			if err != nil || u.Layer.Bytes != 7 {
				t.Fatalf("%+v, %v", u, err)
			}
			used = append(used, u)
		}
		p := round.Pod(pod(parent), used)
		if p.Memory.Usage.Value != want || p.Swap.Usage.Known {
			t.Errorf("%s: %+v, want %d bytes", parent, p.Memory, want)
		}
		if len(p.Links) != 1 || p.Links[0].Name != "eth0" || p.Links[0].RxBytes != 2 || p.Links[0].TxBytes != 1 {
			t.Errorf("links, as the pod sees them: %+v", p.Links)
		}
		round.Pod(pod(parent), nil)
	}
	if dumps != 4 {
		t.Errorf("%d dumps of links for four rounds", dumps)
	}
}

func TestABrokenContainerIsAloneWithIt(t *testing.T) {
	var dumps int
	m, dir := meter(t, &dumps)
	write(t, filepath.Join(dir, "memory/p/good"), "memory.usage_in_bytes", "10")
	write(t, filepath.Join(dir, "memory/p/bare"), "memory.usage_in_bytes", "10")
	write(t, filepath.Join(dir, "memory/p/bad/memory.stat"), "is a directory", "")
	round := m.Round()
	if _, err := round.Container(t.Context(), pod("p"), "bad"); err == nil {
		t.Error("one that cannot be read is no error")
	}
	if u, err := round.Container(t.Context(), pod("p"), "good"); err != nil || u.Memory.Usage.Value != 10 {
		t.Errorf("after it: %+v, %v", u, err)
	}
	if u, err := round.Container(t.Context(), pod("p"), "bare"); err != nil || !u.Layer.At.IsZero() {
		t.Errorf("without a layer: %+v, %v", u, err)
	}
}

// measured answers with what was found, and counts.
type measured struct {
	found Layer
	count int
}

func (m *measured) LayersDir() string { return "/" }
func (m *measured) Layer(context.Context, string, cgroup.Figure) (Layer, error) {
	m.count++
	return m.found, nil
}

func TestAnIdleLayerIsNotAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &measured{found: Layer{Bytes: 1, At: time.Now()}}
		m := NewMeter(Config{Layers: of})
		ask := func(spent cgroup.Figure) Layer {
			time.Sleep(time.Second)
			of.found.At = of.found.At.Add(time.Second)
			return m.layer(t.Context(), "a", spent)
		}
		ask(known(5))
		if got := ask(known(5)); of.count != 1 || got.Bytes != 1 || !got.At.Equal(time.Now()) {
			t.Errorf("idle: asked %d times, %+v", of.count, got)
		}
		of.found.At = of.found.At.Add(-time.Minute) // it was not walked, as it was not due
		ask(known(6))
		if ask(known(6)); of.count != 3 {
			t.Errorf("a size of before the work was kept: asked %d times", of.count)
		}
		if ask(cgroup.Figure{}); of.count != 4 {
			t.Errorf("without a measure of work: asked %d times", of.count)
		}
	})
}

func TestARateNeedsTwoSamplesASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter(Config{})
		at := func(total uint64) cgroup.Figure { return m.rate("a", time.Now(), known(total)) }
		if got := at(1000); got.Known {
			t.Errorf("after one sample: %+v", got)
		}
		time.Sleep(rateWindow / 2)
		if got := at(1500); got.Known {
			t.Errorf("too soon: %+v", got)
		}
		time.Sleep(rateWindow * 3 / 2)
		if got := at(3000); got != known(1000) {
			t.Errorf("2000 ns in two seconds: %+v", got)
		}
		time.Sleep(rateWindow / 2)
		if got := at(5500); got != known(1800) {
			t.Errorf("4500 ns in two and a half seconds: %+v", got)
		}
		if got := at(10); got.Known {
			t.Errorf("a sum that became less: %+v", got)
		}
		if got := m.rate("b", time.Now(), cgroup.Figure{}); got.Known || len(m.rates) != 1 {
			t.Errorf("of nothing: %+v", got)
		}
		time.Sleep(rateKept + time.Second)
		m.rate("c", time.Now(), known(1))
		if len(m.rates) != 1 {
			t.Errorf("what is gone is kept: %v", m.rates)
		}
	})
}

func known(n uint64) cgroup.Figure { return cgroup.Figure{Value: n, Known: true} }

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
