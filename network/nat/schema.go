package nat

import (
	"cmp"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"golang.org/x/sys/unix"
)

// family is what the two families differ in.
type family struct {
	number byte // NFPROTO_*
	addr   nftables.SetDatatype
	source uint32 // offset in the network header
	dest   uint32
	setNames
}

type setNames struct {
	pods      string
	noMasq    string
	ports     string // host ports without a host IP
	hostPorts string // host ports of a host IP
	targets   string // where host ports lead to
}

func ipv4() family {
	return family{
		unix.NFPROTO_IPV4, nftables.TypeIPAddr, 12, 16,
		setNames{"pods4", "no_masq4", "ports4", "host_ports4", "targets4"},
	}
}

func ipv6() family {
	return family{
		unix.NFPROTO_IPV6, nftables.TypeIP6Addr, 8, 24,
		setNames{"pods6", "no_masq6", "ports6", "host_ports6", "targets6"},
	}
}

func families() []family { return []family{ipv4(), ipv6()} }

// only returns the prefixes of the family, without host bits.
func (f family) only(prefixes []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if p.IsValid() && p.Addr().Is6() == (f.number == unix.NFPROTO_IPV6) {
			out = append(out, p.Masked())
		}
	}
	return out
}

// words is the number of 32-bit registers that an address takes.
func (f family) words() int { return int(f.addr.Bytes / 4) }

// schema is the table without its elements, and the one beside it.
type schema struct {
	table  *nftables.Table
	beside *nftables.Table // of the bridge's family, against spoofing; nil without it
	sets   []*nftables.Set
	chains []chain
}

type chain struct {
	*nftables.Chain
	rules []rule
}

// newSchema returns the table of that name. Packets to 127.0.0.0/8 are dropped
// that come in by the interface named bridge, or by any but lo if that is empty.
func newSchema(name string, cfg Config) schema {
	s := schema{table: &nftables.Table{Name: name, Family: nftables.TableFamilyINet}}
	for _, f := range families() {
		s.addSets(f)
	}
	s.addChain(base("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, -300), guardRules(cfg.Bridge))
	s.addChain(nftables.Chain{Name: hostPortsChain}, hostPortRules())
	s.addChain(base("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, -99), toHostPorts())
	s.addChain(base("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, -99), toHostPorts())
	s.addChain(base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, 100), masqueradeRules())
	if cfg.AntiSpoofing {
		s.addSources()
	}
	return s
}

// tables returns those that there are.
func (s schema) tables() []*nftables.Table {
	if s.beside == nil {
		return []*nftables.Table{s.table}
	}
	return []*nftables.Table{s.table, s.beside}
}

// titleOf is how nft names a table.
func titleOf(t *nftables.Table) string {
	family := map[nftables.TableFamily]string{
		nftables.TableFamilyBridge: "bridge", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
	}[t.Family]
	return cmp.Or(family, "inet") + " " + t.Name
}

func (s *schema) addSets(f family) {
	proto, service := nftables.TypeInetProto, nftables.TypeInetService
	to := nftables.MustConcatSetType(f.addr, service)
	s.addSet(nftables.Set{Name: f.pods, KeyType: f.addr, Interval: true, Comment: "made by crib: networks of pods"})
	s.addSet(nftables.Set{Name: f.noMasq, KeyType: f.addr, Interval: true, Comment: "made by crib: pods reach these with their own address"})
	s.addSet(nftables.Set{
		Name: f.ports, IsMap: true, Concatenation: true, Comment: "made by crib: host ports",
		KeyType: nftables.MustConcatSetType(proto, service), DataType: to,
	})
	s.addSet(nftables.Set{
		Name: f.hostPorts, IsMap: true, Concatenation: true, Comment: "made by crib: host ports of one host IP",
		KeyType: nftables.MustConcatSetType(f.addr, proto, service), DataType: to,
	})
	s.addSet(nftables.Set{
		Name: f.targets, Concatenation: true, Comment: "made by crib: where host ports lead to, and the host port",
		KeyType: nftables.MustConcatSetType(f.addr, proto, service, service),
	})
}

func (s *schema) addSet(set nftables.Set) { s.addSetTo(s.table, set) }

func (s *schema) addSetTo(table *nftables.Table, set nftables.Set) {
	set.Table = table
	set.ID = uint32(len(s.sets) + 1) // the library would count in an unguarded global
	set.KeyByteOrder = binaryutil.BigEndian
	s.sets = append(s.sets, &set)
}

func base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return nftables.Chain{Name: name, Type: kind, Hooknum: hook, Priority: &priority, Policy: &accept}
}

func (s *schema) addChain(c nftables.Chain, rules []rule) { s.addChainTo(s.table, c, rules) }

func (s *schema) addChainTo(table *nftables.Table, c nftables.Chain, rules []rule) {
	c.Table = table
	s.chains = append(s.chains, chain{&c, rules})
}

// set returns the set of that name, which must be one of the schema's.
func (s *schema) set(name string) *nftables.Set {
	for _, set := range s.sets {
		if set.Name == name {
			return set
		}
	}
	panic("nat: no set " + name)
}
