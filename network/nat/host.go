package nat

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/crib-runtime/crib/network"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// passComment marks the rules of ours in others' chains.
const passComment = "made by crib: the host forwards for pods"

// kindFirewall is the kind of findings about others' chains.
const kindFirewall = "firewall"

// droppers returns the base chains of others that drop by policy what the host
// forwards, as docker and firewalls make them: it takes one such chain to cut off
// all pods, whatever other tables say.
func (k *kernel) droppers() (chains []*nftables.Chain, err error) {
	err = k.with(func(c *nftables.Conn) error {
		all, err := c.ListChains()
		for _, chain := range all {
			if drops(chain) {
				chains = append(chains, chain)
			}
		}
		return err
	})
	return chains, err
}

func drops(c *nftables.Chain) bool {
	switch c.Table.Family {
	case nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet:
		return c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	}
	return false
}

// passes are the rules that let pods through at the end of such a chain, before its
// policy. What the chain's own rules drop stays dropped.
func passes(bridge string) [][]expr.Any {
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	in, out := fields(meta(expr.MetaKeyIIFNAME)), fields(meta(expr.MetaKeyOIFNAME))
	name := equal(interfaceName(bridge)...)
	return [][]expr.Any{append(in, name, accept), append(out, name, accept)}
}

// passHandles returns the numbers of our rules in a chain.
func (k *kernel) passHandles(chain *nftables.Chain) (handles []uint64, err error) {
	err = k.with(func(*nftables.Conn) error {
		attributes := append(attribute(unix.NFTA_RULE_TABLE, chain.Table.Name), attribute(unix.NFTA_RULE_CHAIN, chain.Name)...)
		rules, err := k.execute(question{chain.Table.Family, unix.NFT_MSG_GETRULE, netlink.Dump}, attributes)
		for _, m := range rules {
			if handle := handleOf(m.Data); bytes.Contains(m.Data, []byte(passComment)) && handle != 0 {
				handles = append(handles, handle)
			}
		}
		return err
	})
	return handles, err
}

// handleOf reads the number of a rule.
func handleOf(data []byte) uint64 {
	d, err := netlink.NewAttributeDecoder(data[min(4, len(data)):])
	if err != nil {
		return 0
	}
	for d.Next() {
		if raw := d.Bytes(); d.Type() == unix.NFTA_RULE_HANDLE && len(raw) == 8 {
			return be64(raw)
		}
	}
	return 0
}

func be64(raw []byte) (n uint64) {
	for _, b := range raw {
		n = n<<8 | uint64(b)
	}
	return n
}

// closed returns the chains of others that cut pods off: they drop and lack our rules.
func (k *kernel) closed(bridge string) (chains []*nftables.Chain, err error) {
	all, err := k.droppers()
	if err != nil {
		return nil, fmt.Errorf("list others' chains: %w", err)
	}
	for _, chain := range all {
		handles, err := k.passHandles(chain)
		if err != nil {
			return nil, fmt.Errorf("list rules of others' chain %s: %w", chainTitle(chain), err)
		}
		if len(handles) < len(passes(bridge)) {
			chains = append(chains, chain)
		}
	}
	return chains, nil
}

// chainTitle is how nft names a chain.
func chainTitle(c *nftables.Chain) string { return titleOf(c.Table) + " " + c.Name }

// openChain puts our rules at the end of a chain, in place of those that are there.
func (k *kernel) openChain(chain *nftables.Chain, bridge string) error {
	handles, err := k.passHandles(chain)
	if err != nil {
		return err
	}
	err = k.transact(func(c *nftables.Conn) error {
		for _, rule := range passes(bridge) {
			c.AddRule(&nftables.Rule{
				Table: chain.Table, Chain: chain, Exprs: rule,
				UserData: userdata.AppendString(nil, userdata.TypeComment, passComment),
			})
		}
		return k.dropPasses(c, chain, handles)
	})
	if err != nil {
		return fmt.Errorf("let pods through chain %s: %w", chainTitle(chain), err)
	}
	return nil
}

func (k *kernel) dropPasses(c *nftables.Conn, chain *nftables.Chain, handles []uint64) error {
	var errs []error
	for _, h := range handles {
		errs = append(errs, c.DelRule(&nftables.Rule{Table: chain.Table, Chain: chain, Handle: h}))
	}
	return errors.Join(errs...)
}

// closeChains takes our rules out of others' chains.
func (k *kernel) closeChains() error {
	all, err := k.droppers()
	errs := []error{err}
	for _, chain := range all {
		handles, err := k.passHandles(chain)
		errs = append(errs, err)
		if len(handles) > 0 {
			errs = append(errs, k.transact(func(c *nftables.Conn) error { return k.dropPasses(c, chain, handles) }))
		}
	}
	return errors.Join(errs...)
}

// checkHost says which chains of others cut pods off. Where it is not to be mended
// there is a remedy. What cannot be read is no finding: others change their tables
// while we read. The caller has the turn.
func (t *Table) checkHost() (found []network.Finding) {
	if t.cfg.Bridge == "" {
		return nil
	}
	chains, err := t.kernel.closed(t.cfg.Bridge)
	if err != nil {
		t.cfg.Log.Debug("looking for chains that cut pods off", "error", err)
		return nil
	}
	for _, c := range chains {
		f := network.Finding{Kind: kindFirewall, Object: chainTitle(c), Text: "its policy drops what the host forwards for pods"}
		if !t.cfg.LetThrough {
			f.Remedy = fmt.Sprintf(`set network.host_firewall = "auto", or run: nft add rule %s iifname %s accept; nft add rule %s oifname %s accept`,
				f.Object, t.cfg.Bridge, f.Object, t.cfg.Bridge)
		}
		found = append(found, f)
	}
	return found
}

// openHost lets pods through the chains that cut them off. The caller has the turn.
func (t *Table) openHost() error {
	if t.cfg.Bridge == "" || !t.cfg.LetThrough {
		return nil
	}
	chains, err := t.kernel.closed(t.cfg.Bridge)
	if err != nil {
		t.cfg.Log.Debug("looking for chains that cut pods off", "error", err)
		return nil
	}
	var errs []error
	for _, c := range chains {
		errs = append(errs, t.kernel.openChain(c, t.cfg.Bridge))
	}
	return errors.Join(errs...)
}
