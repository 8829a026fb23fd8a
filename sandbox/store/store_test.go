package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/store"
)

func open(t *testing.T, root string) *store.Store {
	t.Helper()
	s, err := store.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func pod(id string) *sandbox.Pod {
	return &sandbox.Pod{
		ID:        id,
		Spec:      sandbox.Spec{Key: sandbox.Key{Namespace: "default", Name: "web", UID: "u", Attempt: 3}},
		State:     sandbox.Ready,
		CreatedAt: time.Now().UTC().Round(0),
	}
}

func TestAnotherOpenGetsTheRecordsOfTheFirst(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	want := pod("a")
	if err := s.Put(pod("a")); err != nil {
		t.Fatal(err)
	}
	want.State = sandbox.NotReady
	if err := s.Put(want); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pods, broken, err := open(t, root).Load()
	if err != nil || len(broken) > 0 || len(pods) != 1 || !reflect.DeepEqual(pods[0], want) {
		t.Errorf("got %+v, %v, %v; want %+v", pods, broken, err, want)
	}
}

func TestDeleteIsIdempotent(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	if err := s.Put(pod("a")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Delete("a"); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(root, "pods")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestABrokenRecordIsReportedByItsIDAndHarmsNoOther(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "torn": `{"id":"bad","sp`, "of another pod": `{"id":"other"}`,
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s := open(t, root)
			for _, id := range []string{"good", "bad"} {
				if err := s.Put(pod(id)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(root, "pods/bad/pod.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			pods, broken, err := s.Load()
			if err != nil || len(pods) != 1 || pods[0].ID != "good" || !reflect.DeepEqual(broken, []string{"bad"}) {
				t.Errorf("got %v, %v, %v", pods, broken, err)
			}
		})
	}
}

func TestAnInterruptedReplacementIsIgnored(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	if err := s.Put(pod("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "pods/a/pod.json.new"), []byte(`{"id"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if pods, broken, err := s.Load(); err != nil || len(pods) != 1 || len(broken) != 0 {
		t.Errorf("got %v, %v, %v", pods, broken, err)
	}
}

func record(podID, id string) *container.Container {
	return &container.Container{
		ID:        id,
		Spec:      container.Spec{Key: container.Key{PodID: podID, Name: "main", Attempt: 2}},
		State:     container.Exited,
		CreatedAt: time.Now().UTC().Round(0),
		Exit:      container.Exit{Code: 7, Reason: container.ReasonError},
	}
}

func TestContainersAreKeptBesideTheirPod(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	want := record("p", "c")
	if err := errors.Join(s.Put(pod("p")), s.PutContainer(record("p", "c")), s.PutContainer(want), s.PutContainer(record("q", "d"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, root)
	all, broken, err := s.LoadContainers()
	if err != nil || len(broken) > 0 || len(all) != 2 || !reflect.DeepEqual(all[0], want) {
		t.Errorf("got %+v, %v, %v; want %+v", all, broken, err, want)
	}
	for range 2 {
		if err := s.DeleteContainer("p", "c"); err != nil {
			t.Fatal(err)
		}
	}
	if all, _, err := s.LoadContainers(); err != nil || len(all) != 1 || all[0].ID != "d" {
		t.Errorf("after the deletion: %+v, %v", all, err)
	}
}

func TestDeletingAPodKeepsRecordsOfContainersAndReportsIt(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	if err := errors.Join(s.Put(pod("p")), s.PutContainer(record("p", "c")), s.Delete("p")); err != nil {
		t.Fatal(err)
	}
	all, _, err := s.LoadContainers()
	if err != nil || len(all) != 1 {
		t.Errorf("containers: %v, %v", all, err)
	}
	if pods, broken, err := s.Load(); err != nil || len(pods) > 0 || !reflect.DeepEqual(broken, []string{"p"}) {
		t.Errorf("pods: %v, %v, %v", pods, broken, err)
	}
	if err := errors.Join(s.DeleteContainer("p", "c"), s.Delete("p"), s.Delete("p")); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(root, "pods")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestABrokenRecordOfAContainerIsReportedByItsName(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "torn": `{"id":"bad","sp`, "of another container": `{"id":"other","spec":{"podID":"p"}}`, "of another pod": `{"id":"bad","spec":{"podID":"q"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s := open(t, root)
			if err := errors.Join(s.PutContainer(record("p", "good")), s.PutContainer(record("p", "bad"))); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(root, "pods/p/containers")
			for _, file := range []string{"bad.json", "good.json.new"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			all, broken, err := s.LoadContainers()
			if err != nil || len(all) != 1 || all[0].ID != "good" || !reflect.DeepEqual(broken, []string{"p/bad"}) {
				t.Errorf("got %v, %v, %v", all, broken, err)
			}
		})
	}
}

func TestAFileInThePlaceOfAPodIsReportedAndRemovable(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	if err := os.WriteFile(filepath.Join(root, "pods/x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, broken, err := s.Load(); err != nil || !reflect.DeepEqual(broken, []string{"x"}) {
		t.Errorf("got %v, %v", broken, err)
	}
	if _, _, err := s.LoadContainers(); err != nil {
		t.Error(err)
	}
	if err := s.Delete("x"); err != nil {
		t.Error(err)
	}
}

func TestASecondProcessIsRefusedAndTold(t *testing.T) {
	root := t.TempDir()
	open(t, root)
	if _, err := store.Open(root); err == nil || !strings.Contains(err.Error(), "another crib (PID") {
		t.Errorf("got %v", err)
	}
}

func TestALayoutOfANewerVersionIsRefused(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "VERSION"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(root); err == nil || !strings.Contains(err.Error(), `is "2"`) {
		t.Errorf("got %v", err)
	}
}

func TestFactsAreKept(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	var got []string
	if err := s.Fact("network", &got); err != nil || got != nil {
		t.Errorf("a fact that was never set: %v, %v", got, err)
	}
	want := []string{"10.0.0.0/24"}
	if err := s.SetFact("network", want); err != nil {
		t.Fatal(err)
	}
	if err := s.Fact("network", &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	s := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
}
