package integration

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// door is something of the outside world that only few packages may touch.
type door struct {
	things []string // import paths, "/..." for all below; or "path.Name" for one function
	code   []string // packages that may, "/..." for all below
	tests  []string // packages whose tests may as well
	why    string
}

// doors are the laws about the outside world.
var doors = []door{
	{
		things: []string{"k8s.io/cri-api/..."},
		code:   []string{"cri/...", "integration/..."},
		why:    "CRI messages stay at the edge: the rest speaks of pods and containers, so that a new CRI version changes one package",
	},
	{
		things: []string{"k8s.io/cri-streaming/..."},
		code:   []string{"cri/stream"},
		tests:  []string{"integration/..."},
		why:    "exec, attach and port-forward have one door",
	},
	{
		things: []string{
			"github.com/containerd/containerd/v2/client/...", "github.com/containerd/containerd/v2/core/...",
			"github.com/containerd/containerd/v2/plugins/...", "github.com/containerd/containerd/v2/cmd/...",
		},
		code: []string{"sandbox/engine/...", "cmd/crib-shim/..."},
		why:  "the engine can be replaced and upgraded only while one package knows it",
	},
	{
		things: []string{"github.com/containerd/containerd/v2/...", "github.com/containerd/containerd/api/..."},
		code:   []string{"sandbox/...", "cmd/crib-shim/...", "network/netns"}, // that one for its way into a user namespace
		why:    "containerd's libraries (pkg/oci, pkg/sys, contrib, api/types) describe containers: nothing outside sandbox has one",
	},
	{
		things: []string{"github.com/vishvananda/netlink/...", "github.com/vishvananda/netns/..."},
		code:   []string{"network/..."},
		tests:  []string{"integration/..."},
		why:    "links, addresses and routes are made below network/, where they are also undone",
	},
	{
		things: []string{"github.com/containerd/go-cni/...", "github.com/containernetworking/cni/libcni/..."},
		code:   []string{"network/cni"},
		why:    "CNI is one implementation of a network, not the way crib thinks of networks",
	},
	{
		things: []string{"github.com/google/nftables/..."},
		code:   []string{"network/nat"},
		why:    "one package owns the nft table, so that one transaction can change it",
	},
	{
		things: []string{
			"golang.org/x/sys/unix.Setns", "golang.org/x/sys/unix.Unshare", "syscall.Unshare",
			"github.com/vishvananda/netns.Set", "github.com/vishvananda/netns.New", "github.com/vishvananda/netns.NewNamed",
			"github.com/containernetworking/plugins/pkg/ns/...",
		},
		code: []string{"network/netns/..."},
		why:  "a thread left in a wrong namespace breaks whatever goroutine runs on it next: one package moves threads",
	},
	{
		things: []string{"runtime.LockOSThread", "runtime.UnlockOSThread"},
		code:   []string{"network/netns/...", "cmd/crib"},
		why:    "only network/netns moves threads; cmd/crib locks the main thread once, in an init, since /proc/self is that thread's",
	},
	{
		things: []string{module + "/network/netns/nstest"},
		code:   []string{},
		tests:  []string{"network/...", "sandbox/...", "cri/...", "cmd/...", "integration/..."},
		why:    "a test fixture in a binary is dead weight and a way around network/netns",
	},
	{
		things: []string{
			module + "/network/bridge/...", module + "/network/cni/...", module + "/network/conflist/...",
			module + "/network/nat/...", module + "/sandbox/engine/...", module + "/sandbox/store/...",
		},
		code:  []string{"cmd/crib/...", "network/...", "sandbox/engine/...", "sandbox/store/..."},
		tests: []string{"sandbox/...", "integration/..."},
		why:   "implementations are named in cmd/crib alone; others call the interfaces that they declare themselves",
	},
	{
		things: []string{module + "/ipam/..."},
		code:   []string{"ipam/...", "network/...", "cmd/crib/..."},
		tests:  []string{"sandbox/...", "integration/..."},
		why:    "addresses are handed out by networks; who asks the allocator itself makes a second truth",
	},
}

// layers are the top folders, the lowest first: a folder imports only what comes before it.
var layers = []string{"ipam", "network", "sandbox", "cri", "cmd", "integration"}

// siblings says what a package may import of its own layer besides its parents.
var siblings = map[string][]string{
	"network/bridge":        {"network/nat/...", "network/netns/..."},
	"network/cni":           {"network/netns/..."},
	"network/conflist":      {"network/bridge"},
	"network/nat":           {"network/netns/..."},
	"network/look":          {"network/netns/..."},
	"sandbox/container":     {"sandbox/image"},
	"sandbox/container/oci": {"sandbox/image"},
	"sandbox/engine":        {"sandbox/cgroup", "sandbox/container", "sandbox/image", "sandbox/logpump", "sandbox/usage"},
	"sandbox/feed":          {"sandbox/container"},
	"sandbox/store":         {"sandbox/container", "sandbox/image"},
	"sandbox/usage":         {"sandbox/cgroup"},
}

func TestLayersHold(t *testing.T) {
	for _, f := range checkLayers(readSource(t, "..")) {
		t.Errorf("%s: %s", f.at, f.say)
	}
}

// checkLayers returns what breaks the laws.
func checkLayers(files []sourceFile) []finding {
	var found []finding
	for _, file := range files {
		for _, spec := range file.tree.Imports {
			target := strings.Trim(spec.Path.Value, "`\"")
			found = append(found, checkDoors(file, target, spec)...)
			if why := checkDirection(file, target); why != "" {
				found = append(found, finding{at: file.at(spec.Pos()), say: fmt.Sprintf("%s imports %s: %s", file.dir, target, why)})
			}
		}
		found = append(found, checkCalls(file)...)
	}
	return found
}

// checkDoors holds the laws about the outside world against one import or function.
func checkDoors(file sourceFile, thing string, node ast.Node) []finding {
	var found []finding
	for _, d := range doors {
		if !anyBelow(thing, d.things) || anyBelow(file.dir, d.code) || file.test && anyBelow(file.dir, d.tests) {
			continue
		}
		found = append(found, finding{at: file.at(node.Pos()), say: fmt.Sprintf("%s uses %s: %s", file.dir, thing, d.why)})
	}
	return found
}

// checkCalls holds the same laws against the functions that the file names.
func checkCalls(file sourceFile) []finding {
	var found []finding
	imports := file.imports()
	watched := map[string]bool{}
	for _, d := range doors {
		for _, thing := range d.things {
			watched[thing] = true
		}
	}
	ast.Inspect(file.tree, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		function := imports[name.Name] + "." + selector.Sel.Name
		if watched[function] {
			found = append(found, checkDoors(file, function, selector)...)
		}
		return true
	})
	return found
}

// checkDirection returns why the file's package must not import target, if so.
func checkDirection(file sourceFile, target string) string {
	to, ours := strings.CutPrefix(target, module+"/")
	from := file.dir
	if !ours || from == to || below(from, to+"/...") {
		return ""
	}
	low, high := slices.Index(layers, top(to)), slices.Index(layers, top(from))
	switch {
	case low < 0 || high < 0:
		return "it is outside of the layers " + strings.Join(layers, ", ")
	case low < high:
		return ""
	case low > high:
		return "imports go " + strings.Join(layers, " <- ") + ", never upwards: below must work, and be understood, without above"
	case file.test || top(from) == "cmd" || top(from) == "integration" || anyBelow(to, siblings[from]):
		return ""
	case below(to, from+"/..."):
		return "a child may import its parent, a parent never its child: the parent holds what the children share"
	}
	return "siblings know each other only where the table in layers_test.go says so"
}

// top returns the first folder of a path.
func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

func TestEveryDoorFindsWhoGoesAroundIt(t *testing.T) {
	for _, d := range doors {
		for _, thing := range d.things {
			for _, suffix := range []string{"sample.go", "sample_test.go"} {
				stranger := outside(d, suffix)
				files := writeSource(t, map[string]string{stranger + "/" + suffix: sampleUse(thing)})
				if !slices.ContainsFunc(checkLayers(files), func(f finding) bool { return strings.HasSuffix(f.say, d.why) }) {
					t.Errorf("%s/%s may use %s: want it found", stranger, suffix, thing)
				}
			}
		}
	}
}

func TestEveryDoorLetsItsOwnPackagesThrough(t *testing.T) {
	for _, d := range doors {
		for _, thing := range d.things {
			for _, pattern := range d.code {
				dir := strings.TrimSuffix(pattern, "/...")
				for _, f := range checkDoorsOf(t, dir, thing) {
					if strings.HasSuffix(f.say, d.why) {
						t.Errorf("want it allowed: %s", f.say)
					}
				}
			}
		}
	}
}

// checkDoorsOf returns what is wrong with a package that uses thing.
func checkDoorsOf(t *testing.T, dir, thing string) []finding {
	t.Helper()
	return checkLayers(writeSource(t, map[string]string{dir + "/sample.go": sampleUse(thing)}))
}

// outside returns a package that may not go through the door.
func outside(d door, file string) string {
	for _, dir := range []string{"ipam/hostlocal", "cri", "sandbox/store", "network/cni", "cmd/crib-init"} {
		open := anyBelow(dir, d.code) || strings.HasSuffix(file, "_test.go") && anyBelow(dir, d.tests)
		if !open {
			return dir
		}
	}
	return "elsewhere"
}

// sampleUse returns a file that imports a package, or uses a function of it under another name.
func sampleUse(thing string) string {
	thing = strings.TrimSuffix(thing, "/...")
	slash := strings.LastIndex(thing, "/")
	if dot := strings.LastIndex(thing, "."); dot > slash && thing[dot+1] >= 'A' && thing[dot+1] <= 'Z' {
		return fmt.Sprintf("package sample\n\nimport other %q\n\nvar _ = other.%s\n", thing[:dot], thing[dot+1:])
	}
	return fmt.Sprintf("package sample\n\nimport _ %q\n", thing)
}

func TestImportsGoDownwardsOnly(t *testing.T) {
	tests := []struct {
		from, to string
		want     string // part of the why; "" when allowed
	}{
		{"cri", "sandbox", ""},
		{"sandbox", "network", ""},
		{"sandbox", "network/netns", ""},
		{"network/bridge", "network", ""},
		{"network/bridge", "network/nat", ""},
		{"network/bridge", "ipam", ""},
		{"sandbox/engine", "sandbox/image", ""},
		{"cmd/crib", "network/bridge", ""},
		{"cmd/crib", "cmd/crib/config", ""},
		{"sandbox", "cri", "never upwards"},
		{"network", "sandbox", "never upwards"},
		{"ipam", "network", "never upwards"},
		{"cri", "cmd/crib", "never upwards"},
		{"cmd/crib", "integration", "never upwards"},
		{"sandbox", "sandbox/engine", "implementations are named"},
		{"sandbox", "sandbox/container", "a parent never its child"},
		{"network", "network/bridge", "a parent never its child"},
		{"network/nat", "network/bridge", "siblings"},
		{"sandbox/image", "sandbox/engine", "siblings"},
		{"sandbox", "network/bridge", "implementations are named"},
		{"sandbox", "ipam", "second truth"},
		{"sandbox", "util", "outside of the layers"},
	}
	for _, test := range tests {
		t.Run(test.from+" imports "+test.to, func(t *testing.T) {
			found := checkDoorsOf(t, test.from, module+"/"+test.to)
			hit := slices.ContainsFunc(found, func(f finding) bool { return strings.Contains(f.say, test.want) })
			if test.want == "" && len(found) > 0 || test.want != "" && !hit {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}
