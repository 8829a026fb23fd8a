package integration

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network"
)

// installed is what `make install` makes, below a PREFIX of /usr.
var installed = []string{
	"usr/bin/crib", "usr/libexec/crib/crib-shim", "usr/libexec/crib/crib-init",
	"usr/lib/systemd/system/crib.service", "usr/lib/systemd/network/00-crib.link", "usr/lib/systemd/network/00-crib.network",
	"usr/lib/NetworkManager/conf.d/00-crib.conf", "usr/lib/sysctl.d/90-crib.conf", "usr/lib/modules-load.d/crib.conf",
}

func TestInstallPutsFilesWhereTheirReadersLook(t *testing.T) {
	for prefix, want := range map[string][]string{"/usr": installed, "/usr/local": belowLocal(installed)} {
		t.Run(prefix, func(t *testing.T) {
			root := t.TempDir()
			makeInstall(t, "install", root, prefix)
			slices.Sort(want)
			if got := filesBelow(t, root); !slices.Equal(got, want) {
				t.Errorf("installed\n%v, want\n%v", got, want)
			}
			unit := readText(t, filepath.Join(root, prefix, "lib/systemd/system/crib.service"))
			if !strings.Contains(unit, "ExecStart="+prefix+"/bin/crib serve\n") {
				t.Errorf("unit: %s", unit)
			}
			makeInstall(t, "uninstall", root, prefix)
			if got := filesBelow(t, root); len(got) > 0 {
				t.Errorf("uninstall left %v", got)
			}
		})
	}
}

// belowLocal moves files to /usr/local, but for NetworkManager's, which it does not read there.
func belowLocal(files []string) []string {
	var moved []string
	for _, file := range files {
		rest := strings.TrimPrefix(file, "usr/")
		if strings.Contains(file, "NetworkManager") {
			moved = append(moved, "etc/"+strings.TrimPrefix(rest, "lib/"))
		} else {
			moved = append(moved, "usr/local/"+rest)
		}
	}
	return moved
}

func TestInstalledFilesMatchOurLinks(t *testing.T) {
	if link := network.HostLinkName("pod", "eth0"); !strings.HasPrefix(link, network.Prefix) {
		t.Fatalf("a pod's link is named %s", link)
	}
	for file, line := range map[string]string{
		"00-crib.link":        "OriginalName=" + network.Prefix + "*",
		"00-crib.network":     "Name=" + network.Prefix + "*",
		"00-crib.nm.conf":     "match-device=interface-name:" + network.Prefix + "*",
		"90-crib.sysctl.conf": "-net.ipv4.conf." + network.Prefix + "*.rp_filter = 2",
	} {
		if text := readText(t, filepath.Join("../cmd/crib/systemd", file)); !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("%s has no line %q", file, line)
		}
	}
}

func TestInstallPackageVersionsSortAsReleasesDo(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("dpkg, which knows the order, is not there")
	}
	versions := []string{"0.0.0-dev+abc", "1.0.0-rc1", "1.0.0-rc1-2-gabc123", "1.0.0", "1.0.0-3-gabc123-dirty", "1.0.1"}
	last := ""
	for _, version := range versions {
		now := makeVariable(t, "DEB_VERSION", "VERSION="+version)
		if strings.Contains(now, "-") {
			t.Errorf("%s becomes %s, of which dpkg takes a part as revision", version, now)
		}
		if last != "" {
			if out, err := exec.Command(dpkg, "--compare-versions", last, "lt", now).CombinedOutput(); err != nil {
				t.Errorf("%s is not before %s: %v %s", last, now, err, out)
			}
		}
		last = now
	}
}

func TestInstallPackageIsOfTheArchitectureThatWasAskedFor(t *testing.T) {
	if got := makeVariable(t, "DEB_ARCH", "GOARCH=arm64"); got != "arm64" {
		t.Errorf("GOARCH=arm64 makes a package for %s", got)
	}
}

// makeVariable returns what the Makefile sets, with arguments on make's command line.
func makeVariable(t *testing.T, name string, args ...string) string {
	t.Helper()
	args = append([]string{"-s", "-C", "..", "--eval", "print-it: ; @echo '$(" + name + ")'", "print-it"}, args...)
	out, err := exec.Command("make", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("make: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// makeInstall runs a target of the Makefile with binaries that are only names.
func makeInstall(t *testing.T, target, root, prefix string) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"crib", "crib-shim", "crib-init"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	make := exec.Command("make", "-s", "-C", "..", "-o", "build", target, "BIN="+bin, "DESTDIR="+root, "PREFIX="+prefix)
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v: %s", target, err, out)
	}
}

// filesBelow lists files, sorted, relative to root.
func filesBelow(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
