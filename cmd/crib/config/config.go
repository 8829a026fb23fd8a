package config

import (
	_ "embed"
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"time"
)

// Config is the daemon's configuration. Its zero value is not valid; see [Default].
type Config struct {
	Version int    // of the format: 1
	Root    string // what outlives a reboot
	State   string // what does not
	Listen  string // the socket of CRI; below State by default
	Group   string // that may use it, by name or number
	Log     Log
	Admin   Admin
	Network Network
	Engine  Engine
	Images  Images
	Sandbox Sandbox
	Tracing Tracing
}

// Log says what is logged to standard error.
type Log struct {
	Level  string // "debug", "info", "warn" or "error"
	Format string // "text" or "json"
}

// Admin is the operator's API.
type Admin struct {
	Listen string // its socket; below State by default
}

// Network says how pods are connected.
type Network struct {
	Primary      string         // "auto", "builtin" or the name of a conflist
	CIDRs        []netip.Prefix // of pods; none: those that the kubelet gives
	Bridge       string         // name of the built-in network's link
	MTU          int            // in bytes; 0: that of the uplink
	NoMasquerade []netip.Prefix // destinations that see the pods' own addresses
	NetnsDir     string         // where network namespaces are pinned
	AntiSpoofing bool           // pods send from their own addresses only
	HostFirewall string         // "auto": pods are let through others' chains that drop by policy; "report"
	CNI          CNI
}

// CNI says where conflists and plugins are.
type CNI struct {
	ConfDir string
	BinDirs []string      // searched in this order
	Timeout time.Duration // of one verb of one network
}

// Engine says what runs containers.
type Engine struct {
	Address    string // socket of an external containerd; "": the embedded one
	Listen     string // where the embedded one serves its API; "": nowhere; may be that of CRI
	Shim       string // path; "": beside the daemon's own binary
	Init       string // path; "": beside the daemon's own binary
	OCIRuntime string // path or name; "": the best one installed
}

// Images says how images are pulled.
type Images struct {
	CertsDirs   []string      // of hosts.toml files, searched in this order
	PullIdle    time.Duration // a pull without any progress for as long is given up
	PullMinRate int           // and so is one slower than this, in bytes a second; 0: any
}

// Sandbox says how pods are made.
type Sandbox struct {
	Process      string // "auto", "always" or "never"
	CgroupDriver string // "auto", "systemd" or "cgroupfs"
}

// Tracing says where spans of OpenTelemetry go.
type Tracing struct {
	Endpoint string // of the collector, host:port, by OTLP over gRPC; "": nowhere
	Sampling int    // how many of a million calls are traced that the kubelet does not trace
}

// Default returns the configuration without any file.
func Default() Config {
	c := Config{
		Version: 1,
		Root:    "/var/lib/crib",
		State:   "/run/crib",
		Group:   "root",
		Log:     Log{Level: "info", Format: "text"},
		Network: Network{
			Primary: "auto", Bridge: "crib0", NetnsDir: "/run/netns", AntiSpoofing: true, HostFirewall: "auto",
			CNI: CNI{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, Timeout: 90 * time.Second},
		},
		Images:  Images{CertsDirs: []string{"/etc/crib/certs.d", "/etc/containerd/certs.d"}, PullIdle: 5 * time.Minute, PullMinRate: 1024},
		Sandbox: Sandbox{Process: "auto", CgroupDriver: "auto"},
	}
	derive(&c, nil)
	return c
}

// derive sets the keys that nobody set and that follow from others.
func derive(c *Config, set Origins) {
	if _, ok := set["listen"]; !ok {
		c.Listen = filepath.Join(c.State, "crib.sock")
	}
	if _, ok := set["admin.listen"]; !ok {
		c.Admin.Listen = filepath.Join(c.State, "admin.sock")
	}
	if _, ok := set["engine.listen"]; !ok && sameSocket(c.Listen, ContainerdSocket) {
		c.Engine.Listen = c.Listen
	}
}

// Validate returns all that is impossible about c, joined; each error is of class
// ErrInvalidArgument and names the key.
func Validate(c Config) error {
	return validate(c, nil)
}

// validate is Validate with the places of the keys in the errors.
func validate(c Config, set Origins) error {
	var errs []error
	blame := func(key string, err error) {
		if err != nil {
			errs = append(errs, problem{place: set[key], key: key, text: err.Error()})
		}
	}
	for _, k := range keys() {
		blame(k.name, k.check(c))
	}
	if filepath.Clean(c.Root) == filepath.Clean(c.State) {
		blame("state", errors.New("is the same as root; want a directory of its own, on a tmpfs"))
	}
	for _, clash := range clashes(c, set) {
		blame(clash.key, errors.New(clash.text))
	}
	return errors.Join(errs...)
}

//go:embed default.toml
var defaults string

// WriteDefault writes a file with every key, explained and commented out.
func WriteDefault(w io.Writer) error {
	_, err := io.WriteString(w, defaults)
	return err
}
