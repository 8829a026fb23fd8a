package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/crib-runtime/crib/network/nat"
)

// limit is a sysctl that should not be below a value.
type limit struct {
	name  string
	least int
	why   string
}

func limits() []limit {
	return []limit{
		{"fs.inotify.max_user_instances", 512, "programs in pods and the kubelet watch files"},
		{"fs.inotify.max_user_watches", 65536, "programs in pods and the kubelet watch files"},
		{"kernel.pid_max", 32768, "processes of all pods together"},
		{"net.ipv4.neigh.default.gc_thresh3", 1024, "neighbours of the node, its pods among them"},
		{"user.max_net_namespaces", 2048, "one for each pod"},
	}
}

// sysctls looks at limits that many pods meet, and at what crib sets by itself.
func sysctls() []Finding {
	var all []Finding
	for _, l := range limits() {
		value, ok := number(sysctlPath(l.name))
		if !ok {
			continue // in a namespace some of them are not shown
		}
		all = append(all, good("sysctls", l.name, fmt.Sprintf("%d (%s)", value, l.why)).
			but(value < l.least, Warning, fmt.Sprintf("sysctl -w %s=%d", l.name, l.least)))
	}
	forward := text(sysctlPath("net.ipv4.ip_forward"))
	return append(all, good("sysctls", "net.ipv4.ip_forward", forward+" (crib sets it to 1 when it has pods' ranges)"))
}

// sysctlPath is where the kernel shows a sysctl.
func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// conntrack looks how full the table of flows is.
func conntrack() Finding {
	const dir = "/proc/sys/net/netfilter/nf_conntrack_"
	most, ok := number(dir + "max")
	used, _ := number(dir + "count")
	if !ok {
		return good("sysctls", "conntrack", "not loaded yet")
	}
	return good("sysctls", "conntrack", fmt.Sprintf("%d of %d flows", used, most)).
		but(used*10 > most*8, Warning, fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", 2*most))
}

// firewalls looks for policies of others that drop what pods send and get.
func firewalls(ctx context.Context) []Finding {
	drops, err := nat.ForeignDrops()
	if err != nil {
		return []Finding{{Part: "firewall", Name: "nftables", Verdict: Warning, Found: "the chains cannot be read: " + err.Error(),
			Remedy: "sudo crib check"}}
	}
	all := []Finding{}
	for _, d := range drops {
		all = append(all, Finding{Part: "firewall", Name: "forward", Verdict: Warning,
			Found:  d + " drops by its policy what no rule of it accepts, pods' packets included",
			Remedy: remedy(d)})
	}
	if legacyDrops(ctx) {
		all = append(all, Finding{Part: "firewall", Name: "forward", Verdict: Warning,
			Found: "iptables-legacy drops what is forwarded by its policy", Remedy: "iptables-legacy -P FORWARD ACCEPT"})
	}
	if len(all) == 0 {
		all = append(all, good("firewall", "forward", "nobody drops what is forwarded by a policy"))
	}
	return all
}

// remedy names the command for a chain "family table chain".
func remedy(chain string) string {
	words := strings.Fields(chain)
	switch {
	case len(words) == 3 && words[1] == "filter" && words[2] == "FORWARD" && words[0] == "ip":
		return "iptables -P FORWARD ACCEPT, or a rule there that accepts what pods send"
	case len(words) == 3 && words[1] == "filter" && words[2] == "FORWARD" && words[0] == "ip6":
		return "ip6tables -P FORWARD ACCEPT, or a rule there that accepts what pods send"
	case strings.Contains(chain, "firewalld"):
		return "firewall-cmd --permanent --zone=trusted --add-interface=crib0 && firewall-cmd --reload"
	}
	return "nft list chain " + chain + ", and a rule there that accepts what pods send"
}

// legacyDrops asks the older kind of tables, if it is in use.
func legacyDrops(ctx context.Context) bool {
	if !strings.Contains(text("/proc/net/ip_tables_names"), "filter") {
		return false
	}
	out, err := exec.CommandContext(ctx, "iptables-legacy", "-S", "FORWARD").Output()
	return err == nil && strings.Contains(string(out), "-P FORWARD DROP")
}

// overlaps looks for addresses of the host in the pods' ranges.
func overlaps(cfg Config) []Finding {
	links, err := net.Interfaces()
	if err != nil || len(cfg.CIDRs) == 0 {
		return nil
	}
	var all []Finding
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil || link.Name == cfg.Bridge {
			continue
		}
		for _, addr := range addrs {
			prefix, err := netip.ParsePrefix(addr.String())
			if err == nil && meets(prefix, cfg.CIDRs) {
				all = append(all, Finding{Part: "network", Name: "network.cidrs", Verdict: Missing,
					Found:  fmt.Sprintf("%s of %s lies in the pods' ranges %v", prefix, link.Name, cfg.CIDRs),
					Remedy: "set network.cidrs to ranges that nobody else uses"})
			}
		}
	}
	if len(all) == 0 {
		all = append(all, good("network", "network.cidrs", fmt.Sprintf("%v, used by no link of the host", cfg.CIDRs)))
	}
	return all
}

func meets(prefix netip.Prefix, ranges []netip.Prefix) bool {
	for _, r := range ranges {
		if r.Overlaps(prefix) {
			return true
		}
	}
	return false
}
