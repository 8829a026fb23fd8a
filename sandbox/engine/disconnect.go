package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v2 "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	"github.com/sirupsen/logrus"
)

// disconnect closes the connections to the shims and leaves them and their
// containers alone. containerd takes a closed connection for a dead shim and runs
// `shim delete` in its bundle, which kills the container; there is no call to close
// one otherwise. So all bundles are away meanwhile, and the name by which it knows
// our own binary goes first, for attempts that come late: they fail, nothing is
// deleted, and the connections' goroutines end all the same. The next start brings
// both back before it loads the shims.
func (s *server) disconnect() (err error) {
	tasks, shims := s.loaded.Get(plugins.RuntimePluginV2, "task"), s.loaded.Get(plugins.ShimPlugin, "manager")
	if tasks == nil || shims == nil {
		return nil
	}
	if err := os.Remove(s.link()); err != nil {
		return fmt.Errorf("leaving the shims (their connections stay open): %w", err)
	}
	if err := moveDir(s.bundles(), s.bundles()+awaySuffix); err != nil {
		return fmt.Errorf("leaving the shims (their connections stay open): %w", err)
	}
	defer func() { err = errors.Join(err, s.bundlesBack()) }()
	s.log.Logger.SetLevel(logrus.PanicLevel) // a warning for each would be wrong and alarming
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return disconnectAll(ctx, tasks, shims)
}

// awaySuffix is what the directory of the bundles has behind its name meanwhile.
const awaySuffix = ".away"

// bundles is where containerd has a directory for each task, by namespace.
func (s *server) bundles() string {
	return filepath.Join(s.state, plugins.RuntimePluginV2.String()+".task")
}

// bundlesBack undoes what disconnect, or one that crashed, did to the bundles.
func (s *server) bundlesBack() error {
	if err := moveDir(s.bundles()+awaySuffix, s.bundles()); err != nil {
		return fmt.Errorf("putting the bundles of containers back: %w", err)
	}
	return nil
}

// moveDir renames a directory. That there is none is fine.
func moveDir(from, to string) error {
	if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func disconnectAll(ctx context.Context, tasks, shims *plugin.Plugin) error {
	ti, err := tasks.Instance()
	if err != nil {
		return err
	}
	si, err := shims.Instance()
	if err != nil {
		return err
	}
	all, err := ti.(*v2.TaskManager).Tasks(ctx, true)
	if err != nil {
		return fmt.Errorf("listing the shims: %w", err)
	}
	var errs []error
	for _, t := range all {
		shim, err := si.(*v2.ShimManager).Get(namespaces.WithNamespace(ctx, t.Namespace()), t.ID())
		if err != nil {
			if !errdefs.IsNotFound(err) {
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, shim.Close())
		if c, ok := shim.Client().(interface{ UserOnCloseWait(context.Context) error }); ok {
			errs = append(errs, c.UserOnCloseWait(ctx))
		}
	}
	return errors.Join(errs...)
}
