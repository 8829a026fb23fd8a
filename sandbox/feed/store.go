package feed

import (
	"slices"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

// world is the records as they were written last.
type world struct {
	pods       map[string]*sandbox.Pod
	containers map[string]*container.Container
}

// of returns the containers of a pod that clients may see, oldest first.
func (w world) of(podID string) []*container.Container {
	var found []*container.Container
	for _, c := range w.containers {
		if c.Spec.PodID == podID && c.State != container.Creating {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *container.Container) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return found
}

// pods is a store that the feed listens at.
type pods struct {
	sandbox.Store
	feed *Feed
}

// Pods returns a store of pods like next that tells the feed.
func (f *Feed) Pods(next sandbox.Store) sandbox.Store { return pods{next, f} }

func (s pods) Put(pod *sandbox.Pod) error {
	s.feed.pod(pod)
	return s.Store.Put(pod)
}

func (s pods) Delete(id string) error {
	err := s.Store.Delete(id)
	if err == nil {
		s.feed.podGone(id)
	}
	return err
}

func (s pods) Load() ([]*sandbox.Pod, []string, error) {
	all, broken, err := s.Store.Load()
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, pod := range all {
		s.feed.known.pods[pod.ID] = pod
	}
	return all, broken, err
}

// containers is a store that the feed listens at.
type containers struct {
	container.Store
	feed *Feed
}

// Containers returns a store of containers like next that tells the feed.
func (f *Feed) Containers(next container.Store) container.Store { return containers{next, f} }

func (s containers) PutContainer(c *container.Container) error {
	s.feed.container(c)
	return s.Store.PutContainer(c)
}

func (s containers) DeleteContainer(podID, id string) error {
	err := s.Store.DeleteContainer(podID, id)
	if err == nil {
		s.feed.containerGone(podID, id)
	}
	return err
}

func (s containers) LoadContainers() ([]*container.Container, []string, error) {
	all, broken, err := s.Store.LoadContainers()
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, c := range all {
		s.feed.known.containers[c.ID] = c
	}
	return all, broken, err
}

// pod tells how a pod's record changes. One that was never ready was never there.
func (f *Feed) pod(pod *sandbox.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := sandbox.Creating
	if old := f.known.pods[pod.ID]; old != nil {
		before = old.State
	}
	f.known.pods[pod.ID] = pod
	switch {
	case pod.State == before:
	case pod.State == sandbox.Ready:
		f.tellLocked(Created, pod.ID, pod, pod.ID)
		f.tellLocked(Started, pod.ID, pod, pod.ID)
	case pod.State == sandbox.NotReady:
		f.tellLocked(Stopped, pod.ID, pod, pod.ID)
	}
}

func (f *Feed) podGone(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.known.pods[id]
	delete(f.known.pods, id)
	if old != nil && old.State != sandbox.Creating {
		f.tellLocked(Deleted, id, old, id)
	}
}

// kinds is what it means that a container came to a state.
var kinds = map[container.State]Kind{container.Created: Created, container.Running: Started, container.Exited: Stopped}

// container tells how a container's record changes.
func (f *Feed) container(c *container.Container) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.known.containers[c.ID]
	f.known.containers[c.ID] = c
	if kind := kinds[c.State]; kind != "" && (old == nil || old.State != c.State) {
		f.tellLocked(kind, c.ID, f.known.pods[c.Spec.PodID], c.Spec.PodID)
	}
}

func (f *Feed) containerGone(podID, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.known.containers[id]
	delete(f.known.containers, id)
	if old != nil && old.State != container.Creating {
		f.tellLocked(Deleted, id, f.known.pods[podID], podID)
	}
}
