package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/container"
)

func (s *Store) containerPath(podID, id string) string {
	return filepath.Join(s.podDir(podID), "containers", id+".json")
}

// PutContainer replaces the record of a container.
func (s *Store) PutContainer(c *container.Container) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	path := s.containerPath(c.Spec.PodID, c.ID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	defer s.touch()
	return replaceFile(path, b, false)
}

// DeleteContainer removes the record of a container. It is idempotent.
func (s *Store) DeleteContainer(podID, id string) error {
	defer s.touch()
	for _, path := range []string{s.containerPath(podID, id), s.containerPath(podID, id) + ".new"} {
		if err := os.Remove(path); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// LoadContainers returns the records of all containers, also of pods without a
// record, and the names of those that cannot be read, as "<pod>/<container>".
func (s *Store) LoadContainers() (containers []*container.Container, broken []string, err error) {
	pods, err := os.ReadDir(filepath.Join(s.root, "pods"))
	if err != nil {
		return nil, nil, err
	}
	for _, pod := range pods {
		ids, err := containerNames(s.podDir(pod.Name()))
		if err != nil {
			return nil, nil, err
		}
		for _, id := range ids {
			if c := s.loadContainer(pod.Name(), id); c != nil {
				containers = append(containers, c)
			} else {
				broken = append(broken, pod.Name()+"/"+id)
			}
		}
	}
	return containers, broken, nil
}

// loadContainer returns a record, nil if it cannot be read or is of another one.
func (s *Store) loadContainer(podID, id string) *container.Container {
	var c container.Container
	b, err := os.ReadFile(s.containerPath(podID, id))
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.ID != id || c.Spec.PodID != podID {
		return nil
	}
	return &c
}

// containerNames returns the ids of the containers with a record in a pod's
// directory.
func containerNames(podDir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(podDir, "containers"))
	if err != nil && !missing(err) {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		if id, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// missing tells whether an error says that there is no such file, also because
// something else than a directory has the place of one.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}
