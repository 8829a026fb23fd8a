package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sysctlRoot is where the kernel shows the sysctls of the calling thread's namespace.
const sysctlRoot = "/proc/sys/"

// defaultMTU is for a host without a default route.
const defaultMTU = 1500

// setting is a sysctl, as a path below /proc/sys, and its wanted value.
type setting struct{ path, value string }

// write sets the value. The error wraps os.ErrNotExist if the kernel has no such sysctl.
func (s setting) write() error {
	f, err := os.OpenFile(sysctlRoot+s.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("setting sysctl %s: %w", s.path, err)
	}
	_, err = f.WriteString(s.value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("setting sysctl %s to %s: %w", s.path, s.value, err)
	}
	return nil
}

// writeIn sets a value below dir, unless it is that already: a write of
// disable_ipv6 spins for the lock of the network configuration. It is for several
// settings of one directory, which is costly to find (see ipv6Available).
func (s setting) writeIn(dir *os.Root) (err error) {
	f, err := dir.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("setting sysctl %s: %w", s.path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	got := make([]byte, len(s.value)+1)
	if n, err := f.Read(got); err == nil && strings.TrimSpace(string(got[:n])) == s.value {
		return nil
	}
	if _, err := f.WriteAt([]byte(s.value), 0); err != nil {
		return fmt.Errorf("setting sysctl %s to %s: %w", s.path, s.value, err)
	}
	return nil
}

// current reads the value.
func (s setting) current() (string, error) {
	text, err := os.ReadFile(sysctlRoot + s.path)
	return strings.TrimSpace(string(text)), err
}

// ipv6Available reports whether the kernel runs IPv6 at all. It is not asked for each
// pod: below /proc/sys/net the kernel looks through the entries of all network
// namespaces one by one; at 1000 pods that was a tenth of a pod's CPU time.
func ipv6Available() bool {
	_, err := os.Stat(sysctlRoot + "net/ipv6/conf/all/disable_ipv6")
	return err == nil
}

// hostSettings are the sysctls of the host that pods of these families need.
func hostSettings(cidrs []netip.Prefix) ([]setting, error) {
	var list []setting
	if has4(cidrs) {
		list = append(list, setting{"net/ipv4/ip_forward", "1"})
	}
	if has6(cidrs) {
		// A host that forwards ignores router advertisements unless it is told
		// not to, and would lose its own default route.
		uplinks, err := uplinksByAdvertisement()
		if err != nil {
			return nil, err
		}
		for _, name := range uplinks {
			// 0 stands for a program that handles the advertisements by itself.
			accept := setting{"net/ipv6/conf/" + name + "/accept_ra", "2"}
			if was, err := accept.current(); err == nil && was == "1" {
				list = append(list, accept)
			}
		}
		list = append(list, setting{"net/ipv6/conf/all/forwarding", "1"})
	}
	if !bridgeFilterLoaded() {
		return list, nil
	}
	// Without these, packets between two pods of the bridge pass by the rules
	// that translate the addresses of Services.
	if has4(cidrs) {
		list = append(list, setting{"net/bridge/bridge-nf-call-iptables", "1"})
	}
	if has6(cidrs) {
		list = append(list, setting{"net/bridge/bridge-nf-call-ip6tables", "1"})
	}
	return list, nil
}

// bridgeSettings are the sysctls of the bridge itself; they go with it.
func bridgeSettings(link string, cidrs []netip.Prefix) []setting {
	v4, v6 := "net/ipv4/conf/"+link+"/", "net/ipv6/conf/"+link+"/"
	list := []setting{
		{v4 + "rp_filter", "2"},      // strict breaks what comes back another way
		{v4 + "route_localnet", "1"}, // host ports on 127.0.0.1; package nat guards it
		{v4 + "send_redirects", "0"}, // pods are neighbours, but not by our doing
	}
	if !ipv6Available() {
		return list
	}
	if !has6(cidrs) {
		return append(list, setting{v6 + "disable_ipv6", "1"})
	}
	return append(list, setting{v6 + "disable_ipv6", "0"}, setting{v6 + "accept_ra", "0"},
		setting{v6 + "autoconf", "0"}, setting{v6 + "accept_dad", "0"})
}

// applySettings sets what differs, and records the former values first. It
// returns the settings that it set.
func applySettings(list []setting, record string) (differ []setting, err error) {
	var errs []error
	former := map[string]string{}
	for _, s := range list {
		was, err := s.current()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("reading sysctl %s: %w", s.path, err))
		case was != s.value:
			differ, former[s.path] = append(differ, s), was
		}
	}
	if record != "" && len(former) > 0 {
		if err := recordFormer(record, former); err != nil {
			return nil, errors.Join(append(errs, err)...)
		}
	}
	for _, s := range differ {
		errs = append(errs, s.write())
	}
	return differ, errors.Join(errs...)
}

// recordFormer adds values to the file, except those that it has: what was there
// first is what Reset gives back.
func recordFormer(file string, former map[string]string) error {
	recorded, err := readFormer(file)
	if err != nil {
		return err
	}
	before := len(recorded)
	for path, value := range former {
		if _, ok := recorded[path]; !ok {
			recorded[path] = value
		}
	}
	if len(recorded) == before {
		return nil
	}
	text, err := json.MarshalIndent(recorded, "", "  ")
	if err != nil {
		return fmt.Errorf("recording former sysctls: %w", err)
	}
	if err := replaceFile(file, append(text, '\n')); err != nil {
		return fmt.Errorf("recording former sysctls: %w", err)
	}
	return nil
}

// readFormer reads the file of former values. A missing or empty one has none.
func readFormer(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(text) == 0 {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading former sysctls: %w", err)
	}
	recorded := map[string]string{}
	if err := json.Unmarshal(text, &recorded); err != nil {
		return nil, fmt.Errorf("reading former sysctls in %s (delete it to go on without them): %w", file, err)
	}
	return recorded, nil
}

// replaceFile replaces a file so that no reader, and no crash, sees half of it.
func replaceFile(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// restoreSettings writes the former values back and forgets them. Sysctls that
// are gone with their link are fine.
func restoreSettings(file string) error {
	if file == "" {
		return nil
	}
	former, err := readFormer(file)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(former)) {
		if err := (setting{path, former[path]}).write(); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forgetting former sysctls: %w", err)
	}
	return nil
}

// defaultRoutes lists the default routes of one family.
func defaultRoutes(family int) ([]netlink.Route, error) {
	routes, err := whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Dst: nil, Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing default routes: %w", err)
	}
	return routes, nil
}

// uplinksByAdvertisement names the links that have an IPv6 default route by a
// router advertisement.
func uplinksByAdvertisement() ([]string, error) {
	routes, err := defaultRoutes(netlink.FAMILY_V6)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range routes {
		if r.Protocol != unix.RTPROT_RA {
			continue
		}
		up, err := netlink.LinkByIndex(r.LinkIndex)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking up the link of a default route: %w", err)
		}
		if !slices.Contains(names, up.Attrs().Name) {
			names = append(names, up.Attrs().Name)
		}
	}
	return names, nil
}

// uplinkMTU returns the MTU of the link with the default route: the smaller one
// if the families have different links.
func uplinkMTU() (int, error) {
	mtu := 0
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := defaultRoutes(family)
		if err != nil {
			return 0, err
		}
		if len(routes) == 0 {
			continue
		}
		best := slices.MinFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
		up, err := netlink.LinkByIndex(best.LinkIndex)
		if err != nil {
			continue // gone meanwhile, or a route over several links
		}
		if m := up.Attrs().MTU; mtu == 0 || m < mtu {
			mtu = m
		}
	}
	if mtu == 0 {
		return defaultMTU, nil
	}
	return mtu, nil
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
