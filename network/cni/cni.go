package cni

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"

	"github.com/crib-runtime/crib/network"
)

// Driver is what [network.Attachment].Driver says of attachments of this package.
const Driver = "cni"

// Config says where conflists and plugins are. The zero value works.
type Config struct {
	ConfDir  string        // of the conflists; /etc/cni/net.d when empty
	BinDirs  []string      // searched for plugins in this order; /opt/cni/bin when empty
	CacheDir string        // where plugin results are kept; /run/crib/cni when empty
	Only     string        // the name of the one conflist to use; all of them when empty
	Timeout  time.Duration // of ADD, DEL or STATUS of one conflist; 90 s when zero
	Log      *slog.Logger  // slog.Default() when nil
}

// Networks are the conflists of a directory. Its methods may be called from
// several goroutines, though not for one pod at the same time.
type Networks struct {
	cfg    Config
	cni    *libcni.CNIConfig
	runner *runner

	// mu guards the fields below.
	mu      sync.Mutex
	lists   []conflist
	loadErr error         // why the directory could not be loaded when last tried
	pollErr error         // why a network of lists cannot take pods
	swapped chan struct{} // closed when lists is replaced
}

// Open loads the conflists. A directory that is missing or has files that do not
// parse is no error: [Networks.Status] tells of it.
func Open(cfg Config) (*Networks, error) {
	cfg = cfg.complete()
	for _, dir := range append([]string{cfg.ConfDir, cfg.CacheDir}, cfg.BinDirs...) {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("open CNI networks: directory %q: want an absolute path: %w", dir, errdefs.ErrInvalidArgument)
		}
	}
	n := &Networks{cfg: cfg, cni: cfg.plugins(), swapped: make(chan struct{})}
	n.scan()
	return n, nil
}

func (c Config) complete() Config {
	if c.ConfDir == "" {
		c.ConfDir = "/etc/cni/net.d"
	}
	if len(c.BinDirs) == 0 {
		c.BinDirs = []string{"/opt/cni/bin"}
	}
	if c.CacheDir == "" {
		c.CacheDir = "/run/crib/cni"
	}
	if c.Timeout == 0 {
		c.Timeout = 90 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.ConfDir = filepath.Clean(c.ConfDir)
	return c
}

// plugins returns libcni with our way of running plugins, which inherit the files.
func (c Config) plugins(inherit ...*os.File) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(c.BinDirs, c.CacheDir, &runner{log: c.Log, inherit: inherit})
}

// Names returns the names of the loaded networks, in the lexical order of their
// files. The first one gives a pod its first interface.
func (n *Networks) Names() []string {
	lists, _ := n.loaded()
	names := make([]string, 0, len(lists))
	for _, l := range lists {
		names = append(names, l.name)
	}
	return names
}

// Plan returns one attachment for each loaded network; the first one's interface
// is eth<first>. They hold everything that Attach and Detach will need. Without
// a network, or without a plugin of one, the error is of class ErrUnavailable; with an annotation that cannot
// be understood it is of class ErrInvalidArgument.
func (n *Networks) Plan(pod network.Pod, first int) ([]network.Attachment, error) {
	lists, loadErr := n.loaded()
	if len(lists) == 0 {
		return nil, fmt.Errorf("plan networks: %s: %w", n.none(loadErr), errdefs.ErrUnavailable)
	}
	offered, err := capabilities(pod)
	if err != nil {
		return nil, fmt.Errorf("plan networks: %w", err)
	}
	planned := make([]network.Attachment, 0, len(lists))
	for i, l := range lists {
		if err := n.installed(l); err != nil {
			return nil, fmt.Errorf("plan network %s: %w", l.name, err)
		}
		d := detail{Conflist: l.raw, Args: arguments(pod), Capabilities: l.choose(offered)}
		raw, err := d.encode()
		if err != nil {
			return nil, fmt.Errorf("plan network %s: %w", l.name, err)
		}
		planned = append(planned, network.Attachment{
			Driver: Driver, Network: l.name, Interface: network.InterfaceName(first + i), Detail: raw,
		})
	}
	return planned, nil
}

// installed tells whether the network's plugins are there. An ADD that starts
// without them would leave pods that no DEL can take down until somebody
// installs them.
func (n *Networks) installed(l conflist) error {
	for _, plugin := range l.plugins {
		if _, err := n.runner.FindInPath(plugin, n.cfg.BinDirs); err != nil {
			return err
		}
	}
	return nil
}

// loaded returns the networks in use and why the directory's present state is
// not what they are, if so. The slice is shared and not to be changed.
func (n *Networks) loaded() ([]conflist, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lists, n.loadErr
}

// none says why there is no network and what to do.
func (n *Networks) none(loadErr error) string {
	const head = "cni config uninitialized: "
	switch {
	case loadErr != nil:
		return head + loadErr.Error() + "; correct or remove the file"
	case n.cfg.Only != "":
		return head + fmt.Sprintf("no file in %s has a network named %q; install it or change network.primary", n.cfg.ConfDir, n.cfg.Only)
	}
	return head + fmt.Sprintf("no network in %s; install a CNI add-on, or use the built-in network (network.primary)", n.cfg.ConfDir)
}

// sameLists tells whether a and b are the same networks from the same files.
func sameLists(a, b []conflist) bool {
	return slices.EqualFunc(a, b, func(x, y conflist) bool {
		return x.file == y.file && string(x.raw) == string(y.raw)
	})
}

func joinNames(lists []conflist) string {
	var names []string
	for _, l := range lists {
		names = append(names, l.name+" ("+filepath.Base(l.file)+")")
	}
	return strings.Join(names, ", ")
}
