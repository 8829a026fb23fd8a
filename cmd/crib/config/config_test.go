package config_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/cmd/crib/config"
)

// write puts files below a new directory and returns the path of its config.toml.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config.toml")
}

// load fails unless the file is good.
func load(t *testing.T, path string) (config.Config, config.Origins) {
	t.Helper()
	c, set, err := config.Load(path, config.Flags{})
	if err != nil {
		t.Fatal(err)
	}
	return c, set
}

func TestNoFileGivesTheDefaults(t *testing.T) {
	c, set := load(t, write(t, nil))
	if !reflect.DeepEqual(c, config.Default()) || len(set) != 0 {
		t.Errorf("got %+v set by %v", c, set)
	}
	if err := config.Validate(c); err != nil {
		t.Error(err)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	c, _ := load(t, write(t, map[string]string{"config.toml": `version = 1
root = "/r"
state = "/s"
listen = "/l.sock"
group = "wheel"
admin.listen = "/a.sock"
log = {level = "debug", format = "json"}
[network]
primary = "calico"
cidrs = ["10.1.0.0/16", "fd00::/64"]
bridge = "br0"
mtu = 1400
no_masquerade = ["10.0.0.0/8"]
netns_dir = "/n"
anti_spoofing = false
host_firewall = "report"
cni = {conf_dir = "/c", bin_dirs = ["/b", "/d"], timeout = "2m"}
[engine]
address = "/containerd.sock"
shim = "/shim"
init = "/init"
oci_runtime = "crun"
[images]
certs_dirs = ["/certs"]
pull_idle = "1m"
pull_min_rate = 7
[sandbox]
process = "never"
cgroup_driver = "systemd"
[tracing]
endpoint = "localhost:4317"
sampling = 5
`}))
	want := config.Config{
		Version: 1, Root: "/r", State: "/s", Listen: "/l.sock", Group: "wheel",
		Log: config.Log{Level: "debug", Format: "json"}, Admin: config.Admin{Listen: "/a.sock"},
		Network: config.Network{
			Primary: "calico", Bridge: "br0", MTU: 1400, NetnsDir: "/n", HostFirewall: "report",
			CIDRs:        []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64")},
			NoMasquerade: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			CNI:          config.CNI{ConfDir: "/c", BinDirs: []string{"/b", "/d"}, Timeout: 2 * time.Minute},
		},
		Engine:  config.Engine{Address: "/containerd.sock", Shim: "/shim", Init: "/init", OCIRuntime: "crun"},
		Images:  config.Images{CertsDirs: []string{"/certs"}, PullIdle: time.Minute, PullMinRate: 7},
		Sandbox: config.Sandbox{Process: "never", CgroupDriver: "systemd"},
		Tracing: config.Tracing{Endpoint: "localhost:4317", Sampling: 5},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestLastDropInWinsKeyByKey(t *testing.T) {
	path := write(t, map[string]string{
		"config.toml":         "version = 1\n[log]\nlevel = \"warn\"\nformat = \"json\"\n[network]\ncidrs = [\"10.1.0.0/16\", \"fd00::/64\"]\n",
		"conf.d/20-b.toml":    "version = 1\nlog.level = \"error\"\n",
		"conf.d/10-a.toml":    "version = 1\n[log]\nlevel = \"debug\"\n[network]\nmtu = 1400\ncidrs = [\"10.2.0.0/16\"]\n",
		"conf.d/.hidden.toml": "not TOML",
		"conf.d/README":       "not TOML",
	})
	c, set := load(t, path)
	if c.Log.Level != "error" || c.Log.Format != "json" || c.Network.MTU != 1400 || len(c.Network.CIDRs) != 1 {
		t.Errorf("got %+v", c)
	}
	drop := filepath.Join(filepath.Dir(path), "conf.d")
	want := config.Origins{
		"version": filepath.Join(drop, "20-b.toml:1"), "log.level": filepath.Join(drop, "20-b.toml:2"),
		"log.format": path + ":4", "network.mtu": filepath.Join(drop, "10-a.toml:5"),
		"network.cidrs": filepath.Join(drop, "10-a.toml:6"),
	}
	if !reflect.DeepEqual(set, want) {
		t.Errorf("origins\n got %v\nwant %v", set, want)
	}
}

func TestDropInsAreReadWithoutTheMainFile(t *testing.T) {
	c, _ := load(t, write(t, map[string]string{"conf.d/a.toml": "version = 1\nnetwork.mtu = 1400\n"}))
	if c.Network.MTU != 1400 {
		t.Errorf("got %+v", c)
	}
}

func TestSocketsFollowState(t *testing.T) {
	c, _ := load(t, write(t, map[string]string{"config.toml": "version = 1\nstate = \"/tmp/s\"\n"}))
	if c.Listen != "/tmp/s/crib.sock" || c.Admin.Listen != "/tmp/s/admin.sock" {
		t.Errorf("sockets %s and %s", c.Listen, c.Admin.Listen)
	}
	c, _ = load(t, write(t, map[string]string{"config.toml": "version = 1\nlisten = \"/c.sock\"\nstate = \"/tmp/s\"\n"}))
	if c.Listen != "/c.sock" || c.Admin.Listen != "/tmp/s/admin.sock" {
		t.Errorf("sockets %s and %s", c.Listen, c.Admin.Listen)
	}
}

func TestContainerdsSocketServesItsAPIUnlessToldOtherwise(t *testing.T) {
	for text, want := range map[string]struct {
		api                  string
		oneSocket, cAdvisors bool
	}{
		"": {},
		`listen = "/run/containerd/containerd.sock"`:                           {"/run/containerd/containerd.sock", true, true},
		`listen = "/var/run/containerd/containerd.sock"`:                       {"/var/run/containerd/containerd.sock", true, true},
		"listen = \"/run/containerd/containerd.sock\"\nengine.listen = \"\"":   {},
		"listen = \"/c.sock\"\nengine.listen = \"/c.sock\"":                    {"/c.sock", true, false},
		`engine.listen = "/run/containerd/containerd.sock"`:                    {"/run/containerd/containerd.sock", false, true},
		"listen = \"/run/containerd/containerd.sock\"\nengine.listen = \"/e\"": {"/e", false, false},
	} {
		c, set := load(t, write(t, map[string]string{"config.toml": "version = 1\n" + text}))
		if c.Engine.Listen != want.api || c.Engine.ServedAt(c.Listen) != want.oneSocket || c.Engine.ServedAt(config.ContainerdSocket) != want.cAdvisors {
			t.Errorf("%q: got %q, %v, %v; want %v", text, c.Engine.Listen, c.Engine.ServedAt(c.Listen), c.Engine.ServedAt(config.ContainerdSocket), want)
		}
		var dump bytes.Buffer
		if err := config.Dump(&dump, c, set); err != nil {
			t.Fatal(err)
		}
		if again, _ := load(t, write(t, map[string]string{"config.toml": dump.String()})); !reflect.DeepEqual(again, c) {
			t.Errorf("%q dumped and read back: %+v", text, again)
		}
	}
	c, _, err := config.Load(write(t, map[string]string{"config.toml": "version = 1\n"}), config.Flags{Listen: config.ContainerdSocket})
	if err != nil || !c.Engine.ServedAt(c.Listen) {
		t.Errorf("by --listen: %+v, %v", c.Engine, err)
	}
}

func TestFlagsWinOverFiles(t *testing.T) {
	path := write(t, map[string]string{"config.toml": "version = 1\nstate = \"/file\"\nlog.level = \"warn\"\n"})
	c, set, err := config.Load(path, config.Flags{State: "/flag", LogLevel: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	if c.State != "/flag" || c.Listen != "/flag/crib.sock" || c.Log.Level != "debug" || set["state"] != "--state" {
		t.Errorf("got %+v set by %v", c, set)
	}
	_, _, err = config.Load(path, config.Flags{Root: "here"})
	if err == nil || err.Error() != `--root: root: is "here"; want an absolute path` {
		t.Errorf("error: %v", err)
	}
}

// setting matches a commented-out key of the written defaults.
var setting = regexp.MustCompile(`(?m)^#([a-z_]+ = )`)

func TestWrittenDefaultsAreTheDefaults(t *testing.T) {
	var out bytes.Buffer
	if err := config.WriteDefault(&out); err != nil {
		t.Fatal(err)
	}
	c, set := load(t, write(t, map[string]string{"config.toml": out.String()}))
	if !reflect.DeepEqual(c, config.Default()) || len(set) != 1 {
		t.Errorf("as written: %+v set by %v", c, set)
	}
	path := write(t, map[string]string{"config.toml": setting.ReplaceAllString(out.String(), "$1")})
	c, set = load(t, path)
	if !reflect.DeepEqual(c, config.Default()) {
		t.Errorf("uncommented:\n got %+v\nwant %+v", c, config.Default())
	}
	var dump bytes.Buffer
	if err := config.Dump(&dump, c, set); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(dump.String(), "# default") {
		t.Errorf("keys that the written defaults lack:\n%s", dump.String())
	}
}

func TestWrittenDefaultsExplainEveryKey(t *testing.T) {
	var out bytes.Buffer
	if err := config.WriteDefault(&out); err != nil {
		t.Fatal(err)
	}
	before := ""
	for line := range strings.Lines(out.String()) {
		if setting.MatchString(line) && !strings.HasPrefix(before, "# ") {
			t.Errorf("no explanation above %s", line)
		}
		before = line
	}
}

func TestDumpTellsWhichFileSetWhat(t *testing.T) {
	path := write(t, map[string]string{
		"config.toml":   "version = 1\nroot = \"/a b\\\"c\"\n",
		"conf.d/a.toml": "version = 1\n[network]\ncidrs = [\n  \"10.1.0.0/16\",\n]\n[network.cni]\ntimeout = \"45s\"\n",
	})
	c, set := load(t, path)
	var out bytes.Buffer
	if err := config.Dump(&out, c, set); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	got := strings.ReplaceAll(out.String(), dir, "DIR")
	want, err := os.ReadFile("testdata/dump.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	again, _ := load(t, write(t, map[string]string{"config.toml": out.String()}))
	if !reflect.DeepEqual(again, c) {
		t.Errorf("read back: %+v\nwas: %+v", again, c)
	}
}

// explained fails unless Load explains what is wrong with each text; F stands for
// the file's path.
func explained(t *testing.T, texts map[string]string) {
	t.Helper()
	for text, want := range texts {
		path := write(t, map[string]string{"config.toml": text})
		_, _, err := config.Load(path, config.Flags{})
		if err == nil {
			t.Errorf("%q: no error; want %s", text, want)
			continue
		}
		if got := strings.ReplaceAll(err.Error(), path, "F"); got != want {
			t.Errorf("%q\n got %s\nwant %s", text, got, want)
		}
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v is not of class ErrInvalidArgument", text, err)
		}
	}
}

func TestBadSyntaxIsExplained(t *testing.T) {
	explained(t, map[string]string{
		"":                           `F:1: version: "version = 1" must be at the top of the file`,
		"[log]\nlevel = \"info\"":    `F:1: version: "version = 1" must be at the top of the file`,
		"root = \"/r\"\nversion = 1": `F:2: version: "version = 1" must be at the top of the file`,
		"version = 2\nfuture = 1":    "F:1: version: is 2, which this crib does not know; want 1",
		"version = \"1\"":            "F:1: version: is a string; want a whole number without quotes",
		"version = 1\nroot = ":       "F:2: expected value, not end of input",
		"version = 1\nroot = /x":     "F:2: unexpected character U+002F '/' at start of value",
		"version = 1\n[log]\n[log]":  "F:3: table log already exists",
	})
}

func TestWrongTypesAreExplained(t *testing.T) {
	explained(t, map[string]string{
		"version = 1\nroot = 5":          "F:2: root: is a whole number; want a string in quotes",
		"version = 1\nroot = 5.5":        "F:2: root: is a number with a fraction; want a string in quotes",
		"version = 1\nroot = true":       "F:2: root: is true or false; want a string in quotes",
		"version = 1\nroot = []":         "F:2: root: is a list; want a string in quotes",
		"version = 1\n[root]":            "F:2: root: is a table; want a string in quotes",
		"version = 1\nroot = 2026-01-01": "F:2: root: is a date or time; want a string in quotes",
		"version = 1\nlog = 3":           "F:2: log: is a whole number; want a table: [log] and its keys in the lines below",
	})
}

func TestUnknownKeysAreExplained(t *testing.T) {
	explained(t, map[string]string{
		"version = 1\nroots = \"/r\"":            "F:2: roots: unknown key; `crib config default` shows all there are",
		"version = 1\n\"log.level\" = \"info\"":  "F:2: \"log.level\": unknown key; `crib config default` shows all there are",
		"version = 1\n[log]\n\nlevle = \"info\"": "F:4: log.levle: unknown key; `crib config default` shows all there are",
		"version = 1\nlog = {a = 1}":             "F:2: log.a: unknown key; `crib config default` shows all there are",
		"version = 1\n[logs]":                    "F:2: logs: unknown table; `crib config default` shows all there are",
		"version = 1\n[[net]]\na = 1":            "F:2: net: unknown table; `crib config default` shows all there are\nF:3: net.a: unknown key; `crib config default` shows all there are",
	})
}

func TestImpossibleValuesAreExplained(t *testing.T) {
	explained(t, map[string]string{
		"version = 1\nroot = \"r\"":                                      `F:2: root: is "r"; want an absolute path`,
		"version = 1\nroot = \"/\"":                                      `F:2: root: is "/"; want a directory below it`,
		"version = 1\nroot = \"/run/crib/\"":                             "state: is the same as root; want a directory of its own, on a tmpfs",
		"version = 1\nlisten = \"unix:///x\"":                            `F:2: listen: is "unix:///x"; want the path alone, without unix://`,
		"version = 1\nlisten = \"/" + strings.Repeat("x", 107) + "\"":    "F:2: listen: is a path of 108 bytes; the kernel takes at most 107 for a socket",
		"version = 1\ngroup = \"\"":                                      `F:2: group: is ""; want the name or number of a group`,
		"version = 1\nadmin.listen = \"/run/crib/crib.sock\"":            "F:2: admin.listen: is the same as listen; want a socket of its own",
		"version = 1\nlog.level = \"loud\"":                              `F:2: log.level: is "loud"; want one of debug, info, warn, error`,
		"version = 1\nlog.format = \"xml\"":                              `F:2: log.format: is "xml"; want one of text, json`,
		"version = 1\nnetwork.primary = \"../x\"":                        `F:2: network.primary: is "../x"; want "auto", "builtin" or the name of a CNI network`,
		"version = 1\nnetwork.cidrs = \"10.1.0.0/16\"":                   `F:2: network.cidrs: is a string; want a list of strings, such as ["a", "b"]`,
		"version = 1\nnetwork.cidrs = [\"10.1.0.0/16\", 7]":              "F:2: network.cidrs: entry 2 is a whole number; want a string in quotes",
		"version = 1\nnetwork.cidrs = [\"10.1.0.0\"]":                    `F:2: network.cidrs: entry 1 is "10.1.0.0"; want a subnet such as "10.244.1.0/24"`,
		"version = 1\nnetwork.cidrs = [\"10.1.0.5/16\"]":                 "F:2: network.cidrs: entry 1 is 10.1.0.5/16, an address within a subnet; want 10.1.0.0/16",
		"version = 1\nnetwork.cidrs = [\"10.1.0.0/31\"]":                 "F:2: network.cidrs: entry 1 is 10.1.0.0/31, too small for a pod and its gateway; want /30 or a larger one",
		"version = 1\nnetwork.cidrs = [\"224.0.0.0/24\"]":                "F:2: network.cidrs: entry 1 is 224.0.0.0/24, which pods cannot have; want a subnet of unicast addresses",
		"version = 1\nnetwork.cidrs = [\"10.1.0.0/16\", \"10.0.0.0/8\"]": "F:2: network.cidrs: entry 2 is 10.0.0.0/8, which overlaps with 10.1.0.0/16; want subnets apart",
		"version = 1\nnetwork.bridge = \"a-name-too-long-for-it\"":       `F:2: network.bridge: is "a-name-too-long-for-it"; want a link's name: 1 to 15 bytes, no slash, colon or space`,
		"version = 1\nnetwork.mtu = 100":                                 "F:2: network.mtu: is 100; want 576 to 65535, or 0 for that of the uplink",
		"version = 1\nnetwork.cni.timeout = 90":                          `F:2: network.cni.timeout: is a whole number; want a time in quotes, such as "90s"`,
		"version = 1\nnetwork.cni.timeout = \"90\"":                      `F:2: network.cni.timeout: is "90"; want a time such as "90s" or "2m"`,
		"version = 1\nnetwork.cni.timeout = \"1h\"":                      "F:2: network.cni.timeout: is 1h0m0s; want 1s to 10m",
		"version = 1\nnetwork.cni.bin_dirs = []":                         "F:2: network.cni.bin_dirs: is empty; want at least one directory",
		"version = 1\nnetwork.cni.bin_dirs = [\"/a\", \"b\"]":            `F:2: network.cni.bin_dirs: entry 2 is "b"; want an absolute path`,
		"version = 1\nengine.oci_runtime = \"./crun\"":                   `F:2: engine.oci_runtime: is "./crun"; want an absolute path, or a name alone`,
		"version = 1\n[engine]\nlisten = \"/l\"\naddress = \"/a\"":       "F:3: engine.listen: serves the embedded engine, which engine.address turns off; set one of the two",
		"version = 1\nlisten = \"/run/containerd/containerd.sock\"\nengine.address = \"/a\"": "F:2: listen: is containerd's socket, where clients expect its API, too, which engine.address turns off; " +
			`want another path, or engine.listen = "" to serve CRI alone`,
		"version = 1\nlisten = \"/l\"\nengine.listen = \"/l\"\nengine.address = \"/a\"": "F:3: engine.listen: serves the embedded engine, which engine.address turns off; set one of the two",
		"version = 1\nlisten = \"/var/run/a\"\nengine.address = \"/run/a\"":             "F:3: engine.address: is the same as listen; want the socket of another process",
		"version = 1\nsandbox.process = \"maybe\"":                                      `F:2: sandbox.process: is "maybe"; want one of auto, always, never`,
		"version = 1\nsandbox.cgroup_driver = \"x\"":                                    `F:2: sandbox.cgroup_driver: is "x"; want one of auto, systemd, cgroupfs`,
		"version = 1\ntracing.endpoint = \"http://localhost\"":                          `F:2: tracing.endpoint: is "http://localhost"; want a host and a port, such as "127.0.0.1:4317"`,
		"version = 1\ntracing.sampling = 2000000":                                       "F:2: tracing.sampling: is 2000000; want 0 to 1000000, of a million calls",
		"version = 1\nfoo = 1\nlog.level = 1\nnetwork.mtu = 1": "F:2: foo: unknown key; `crib config default` shows all there are\n" +
			"F:3: log.level: is a whole number; want a string in quotes\n" +
			"F:4: network.mtu: is 1; want 576 to 65535, or 0 for that of the uplink",
	})
}

func TestProblemsOfAllFilesAreToldAtOnce(t *testing.T) {
	path := write(t, map[string]string{
		"config.toml": "version = 1\nfoo = 1\n", "conf.d/a.toml": "bar = 1\n", "conf.d/b.toml": "version = 1\nlog.level = \"x\"\n",
	})
	_, _, err := config.Load(path, config.Flags{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"config.toml:2: foo: ", "conf.d/a.toml:1: version: ", "conf.d/b.toml:2: log.level: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestValidateNamesTheKeyWithoutAFile(t *testing.T) {
	c := config.Default()
	c.Network.MTU = 5
	if err := config.Validate(c); !errdefs.IsInvalidArgument(err) || !strings.HasPrefix(err.Error(), "network.mtu: is 5; ") {
		t.Errorf("error: %v", err)
	}
}

func TestUnreadableFileIsAnError(t *testing.T) {
	path := write(t, map[string]string{"config.toml/x": ""})
	if _, _, err := config.Load(path, config.Flags{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error: %v", err)
	}
}

func FuzzLoadNeverPanics(f *testing.F) {
	f.Add("version = 1\nlog = {level = \"info\"}\n")
	f.Add("version = 1\n[[a]]\nb.c = {d = [1, {e = 2}]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, map[string]string{"config.toml": text})
		if c, _, err := config.Load(path, config.Flags{}); err == nil && config.Validate(c) != nil {
			t.Errorf("%q passes Load and not Validate", text)
		}
	})
}
