package config

import (
	"fmt"
	"net/netip"
	"time"
)

// key is one key of the file.
type key struct {
	name  string                       // with its tables, as "log.level"
	set   func(c *Config, v any) error // from what the TOML parser made of it
	show  func(c Config) any           // a string, an int, a bool or a list of strings
	check func(c Config) error         // whether the value is possible
}

// keys lists all keys in the order in which they are shown.
func keys() []key {
	return []key{
		define("version", func(c *Config) *int { return &c.Version }, integer(), isVersion),
		define("root", func(c *Config) *string { return &c.Root }, text(), isAbsolute),
		define("state", func(c *Config) *string { return &c.State }, text(), isAbsolute),
		define("listen", func(c *Config) *string { return &c.Listen }, text(), isSocket),
		define("group", func(c *Config) *string { return &c.Group }, text(), isGroup),
		define("log.level", func(c *Config) *string { return &c.Log.Level }, text(), oneOf("debug", "info", "warn", "error")),
		define("log.format", func(c *Config) *string { return &c.Log.Format }, text(), oneOf("text", "json")),
		define("admin.listen", func(c *Config) *string { return &c.Admin.Listen }, text(), isSocket),
		define("network.primary", func(c *Config) *string { return &c.Network.Primary }, text(), isPrimary),
		define("network.cidrs", func(c *Config) *[]netip.Prefix { return &c.Network.CIDRs }, prefixes(), arePodRanges),
		define("network.bridge", func(c *Config) *string { return &c.Network.Bridge }, text(), isLinkName),
		define("network.mtu", func(c *Config) *int { return &c.Network.MTU }, integer(), isMTU),
		define("network.no_masquerade", func(c *Config) *[]netip.Prefix { return &c.Network.NoMasquerade }, prefixes(), areSubnets),
		define("network.netns_dir", func(c *Config) *string { return &c.Network.NetnsDir }, text(), isAbsolute),
		define("network.anti_spoofing", func(c *Config) *bool { return &c.Network.AntiSpoofing }, boolean(), func(bool) error { return nil }),
		define("network.host_firewall", func(c *Config) *string { return &c.Network.HostFirewall }, text(), oneOf("auto", "report")),
		define("network.cni.conf_dir", func(c *Config) *string { return &c.Network.CNI.ConfDir }, text(), isAbsolute),
		define("network.cni.bin_dirs", func(c *Config) *[]string { return &c.Network.CNI.BinDirs }, list(), areDirectories),
		define("network.cni.timeout", func(c *Config) *time.Duration { return &c.Network.CNI.Timeout }, duration(), isTimeout),
		define("engine.address", func(c *Config) *string { return &c.Engine.Address }, text(), emptyOr(isSocket)),
		define("engine.listen", func(c *Config) *string { return &c.Engine.Listen }, text(), emptyOr(isSocket)),
		define("engine.shim", func(c *Config) *string { return &c.Engine.Shim }, text(), emptyOr(isAbsolute)),
		define("engine.init", func(c *Config) *string { return &c.Engine.Init }, text(), emptyOr(isAbsolute)),
		define("engine.oci_runtime", func(c *Config) *string { return &c.Engine.OCIRuntime }, text(), emptyOr(isProgram)),
		define("images.certs_dirs", func(c *Config) *[]string { return &c.Images.CertsDirs }, list(), areDirectories),
		define("images.pull_idle", func(c *Config) *time.Duration { return &c.Images.PullIdle }, duration(), isTimeout),
		define("images.pull_min_rate", func(c *Config) *int { return &c.Images.PullMinRate }, integer(), isRate),
		define("sandbox.process", func(c *Config) *string { return &c.Sandbox.Process }, text(), oneOf("auto", "always", "never")),
		define("sandbox.cgroup_driver", func(c *Config) *string { return &c.Sandbox.CgroupDriver }, text(), oneOf("auto", "systemd", "cgroupfs")),
		define("tracing.endpoint", func(c *Config) *string { return &c.Tracing.Endpoint }, text(), emptyOr(isHostPort)),
		define("tracing.sampling", func(c *Config) *int { return &c.Tracing.Sampling }, integer(), isPerMillion),
	}
}

// define makes a key of a field, of how its values are written and of which are
// possible.
func define[T any](name string, field func(*Config) *T, as notation[T], check func(T) error) key {
	return key{
		name: name,
		set: func(c *Config, v any) error {
			read, err := as.read(v)
			if err == nil {
				*field(c) = read
			}
			return err
		},
		show:  func(c Config) any { return as.write(*field(&c)) },
		check: func(c Config) error { return check(*field(&c)) },
	}
}

// notation is how values of one Go type are written in TOML.
type notation[T any] struct {
	read  func(v any) (T, error)
	write func(T) any
}

func text() notation[string] {
	return notation[string]{read: readText, write: func(s string) any { return s }}
}

func readText(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("is %s; want a string in quotes", kind(v))
	}
	return s, nil
}

func integer() notation[int] {
	read := func(v any) (int, error) {
		n, ok := v.(int64)
		if !ok {
			return 0, fmt.Errorf("is %s; want a whole number without quotes", kind(v))
		}
		return int(n), nil
	}
	return notation[int]{read: read, write: func(n int) any { return n }}
}

func boolean() notation[bool] {
	read := func(v any) (bool, error) {
		b, ok := v.(bool)
		if !ok {
			return false, fmt.Errorf("is %s; want true or false without quotes", kind(v))
		}
		return b, nil
	}
	return notation[bool]{read: read, write: func(b bool) any { return b }}
}

func duration() notation[time.Duration] {
	read := func(v any) (time.Duration, error) {
		s, err := readText(v)
		if err != nil {
			return 0, fmt.Errorf("is %s; want a time in quotes, such as \"90s\"", kind(v))
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("is %q; want a time such as \"90s\" or \"2m\"", s)
		}
		return d, nil
	}
	return notation[time.Duration]{read: read, write: func(d time.Duration) any { return d.String() }}
}

func list() notation[[]string] {
	return notation[[]string]{read: readList, write: func(l []string) any { return append([]string{}, l...) }}
}

func readList(v any) ([]string, error) {
	values, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("is %s; want a list of strings, such as [\"a\", \"b\"]", kind(v))
	}
	var read []string
	for i, value := range values {
		s, err := readText(value)
		if err != nil {
			return nil, fmt.Errorf("entry %d %w", i+1, err)
		}
		read = append(read, s)
	}
	return read, nil
}

func prefixes() notation[[]netip.Prefix] {
	read := func(v any) ([]netip.Prefix, error) {
		texts, err := readList(v)
		var read []netip.Prefix
		for i, s := range texts {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				return nil, fmt.Errorf("entry %d is %q; want a subnet such as \"10.244.1.0/24\"", i+1, s)
			}
			read = append(read, p)
		}
		return read, err
	}
	write := func(ps []netip.Prefix) any {
		texts := make([]string, 0, len(ps))
		for _, p := range ps {
			texts = append(texts, p.String())
		}
		return texts
	}
	return notation[[]netip.Prefix]{read: read, write: write}
}

// kind names the TOML type of a value, with its article.
func kind(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}
