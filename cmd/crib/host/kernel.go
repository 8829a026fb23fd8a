package host

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Modules are the parts of the kernel that crib uses and that may be modules.
// The kernel loads most of them when they are used, if it is allowed to; none but
// crib loads br_netfilter.
func Modules() []string {
	return []string{
		"overlay",        // roots of containers
		"bridge", "veth", // links of pods
		"br_netfilter",              // rules see what passes between pods of the node
		"nf_tables", "nf_conntrack", // the table, and what it translates
		"nf_conntrack_netlink",                 // flows to a pod that ended are forgotten
		"nft_chain_nat", "nft_nat", "nft_masq", // host ports and masquerading
		"nft_ct", "nft_fib_inet", // what a rule asks of a packet
	}
}

// oldKernel is the first that crib is not run on any more: 5.10 has been the
// oldest of the distributions that still get it repaired.
var oldKernel = [2]int{5, 10}

func kernelVersion() Finding {
	release := text("/proc/sys/kernel/osrelease")
	var v [2]int
	_, err := fmt.Sscanf(release, "%d.%d", &v[0], &v[1])
	return good("kernel", "version", release).but(err != nil || slices.Compare(v[:], oldKernel[:]) < 0, Warning,
		"boot a kernel of 5.10 or later; what does not work on this one says so below")
}

// modules looks for what can be loaded. A kernel without modules has built in
// what it has, and the tries tell what that is.
func modules() Finding {
	dir := filepath.Join("/lib/modules", text("/proc/sys/kernel/osrelease"))
	if !exists(dir) {
		return good("kernel", "modules", "the kernel has no directory of modules; what it has built in was tried")
	}
	known := listed(filepath.Join(dir, "modules.dep"), filepath.Join(dir, "modules.builtin"))
	var absent []string
	for _, name := range Modules() {
		if !exists(filepath.Join("/sys/module", name)) && !known[name] {
			absent = append(absent, name)
		}
	}
	if len(absent) == 0 {
		return good("kernel", "modules", fmt.Sprintf("all %d are loaded, built in or there to be loaded", len(Modules())))
	}
	return Finding{Part: "kernel", Name: "modules", Verdict: Warning, Found: "not found: " + strings.Join(absent, " "),
		Remedy: "install the package with this kernel's modules (Debian: apt install linux-image-$(uname -r))"}
}

// listed returns the names of the modules in lists of files.
func listed(lists ...string) map[string]bool {
	names := map[string]bool{}
	for _, list := range lists {
		f, err := os.Open(list)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			file, _, _ := strings.Cut(lines.Text(), ":")
			name, _, _ := strings.Cut(filepath.Base(file), ".ko")
			names[strings.ReplaceAll(name, "-", "_")] = true
		}
		_ = f.Close()
	}
	return names
}

func bridgeFilter() Finding {
	if exists("/proc/sys/net/bridge") {
		return good("kernel", "br_netfilter", "rules see what passes between pods of the node")
	}
	return Finding{Part: "kernel", Name: "br_netfilter", Verdict: Warning,
		Found:  "not loaded: Services may not answer pods of the same node",
		Remedy: "modprobe br_netfilter && echo br_netfilter >/etc/modules-load.d/crib.conf"}
}

// userNamespaces tries one. Pods that want one are the only ones that miss it.
func userNamespaces() Finding {
	root := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	cmd := exec.Command("/proc/self/exe", "--version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: root}
	err := cmd.Run()
	if err == nil {
		return good("kernel", "user namespaces", "can be made, at most "+text("/proc/sys/user/max_user_namespaces"))
	}
	return Finding{Part: "kernel", Name: "user namespaces", Verdict: Warning, Found: "cannot be made: " + err.Error(),
		Remedy: "sysctl -w user.max_user_namespaces=15000 (needed for pods with hostUsers: false only)"}
}

// security tells which module of the kernel confines containers.
func security() Finding {
	modules := text("/sys/kernel/security/lsm")
	if modules == "" {
		modules = "unknown: securityfs is not mounted"
	}
	seccomp := strings.Contains(text("/proc/self/status"), "\nSeccomp:")
	return good("kernel", "security", "modules "+modules+", seccomp "+map[bool]string{true: "yes", false: "no"}[seccomp]).
		but(!seccomp, Warning, "boot a kernel with CONFIG_SECCOMP_FILTER; containers run without filters on this one")
}
