package nstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// observe looks at everything that a test could leave behind.
func observe() (world, error) {
	w := world{}
	var errs []error
	for _, look := range []func(world) error{links, routes, mounts, ruleset, processes, descriptors, threads, goroutines} {
		errs = append(errs, look(w))
	}
	return w, errors.Join(errs...)
}

// whole repeats a dump that the kernel interrupted.
func whole[T any](dump func() ([]T, error)) ([]T, error) {
	for range 20 {
		list, err := dump()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}

// links notes links and their addresses.
func links(w world) error {
	list, err := whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range list {
		w[fmt.Sprintf("link %s type %s", l.Attrs().Name, l.Type())]++
	}
	addrs, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		w[fmt.Sprintf("address %s on link %d", a.IPNet, a.LinkIndex)]++
	}
	return nil
}

// routes notes the routes of all tables, and the policy rules.
func routes(w world) error {
	list, err := whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range list {
		w["route "+r.String()]++
	}
	rules, err := whole(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, r := range rules {
		w["rule "+r.String()]++
	}
	return nil
}

// mounts notes the mount table without its numbers.
func mounts(w world) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		before, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); len(f) > 4 {
			w[fmt.Sprintf("mount %s of %s (%s)", f[4], f[3], strings.Fields(after)[0])]++
		}
	}
	return nil
}

// counted matches what changes in a ruleset by traffic and time alone.
var counted = regexp.MustCompile(`packets \d+ bytes \d+| expires \w+`)

// ruleset notes the nft ruleset where there is an nft to ask.
func ruleset(w world) error {
	nft, err := exec.LookPath("nft")
	if err != nil {
		return nil
	}
	out, err := exec.Command(nft, "list", "ruleset").CombinedOutput()
	if err != nil {
		return fmt.Errorf("nft list ruleset: %w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		w["nft "+counted.ReplaceAllString(strings.TrimRight(line, "\n"), "")]++
	}
	return nil
}

// processes notes the other processes of our mount namespace: children, and what
// they left behind.
func processes(w world) error {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	self := fmt.Sprintf("/proc/%d", os.Getpid())
	for _, dir := range dirs {
		if ns, err := os.Readlink(dir + "/ns/mnt"); err != nil || ns != mine || dir == self {
			continue
		}
		name, _ := os.ReadFile(dir + "/cmdline")
		w[fmt.Sprintf("process %s %q", filepath.Base(dir), name)]++
	}
	return nil
}

// descriptors notes what our descriptors point to. The runtime's own poller is
// made at its first use, whenever that is.
func descriptors(w world) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]" {
			continue
		}
		kind, _, _ := strings.Cut(to, ":[")
		w["descriptor to "+kind]++
	}
	return nil
}

// threads notes the threads that are in another network namespace than the process.
func threads(w world) error {
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	w["main thread in "+home]++
	tasks, err := filepath.Glob("/proc/self/task/[0-9]*")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		if ns, err := os.Readlink(task + "/ns/net"); err == nil && ns != home {
			w["thread in "+ns]++
		}
	}
	return nil
}

// goroutines notes the goroutines, by the function that each was started with.
func goroutines(w world) error {
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 2); err != nil {
		return err
	}
	for stack := range strings.SplitSeq(text.String(), "\n\n") {
		if _, start, ok := strings.Cut(stack, "\ncreated by "); ok {
			where, _, _ := strings.Cut(start, " in goroutine")
			w["goroutine of "+where]++
		}
	}
	return nil
}
