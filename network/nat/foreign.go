package nat

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
)

// ForeignDrops names the base chains, as "family table chain", that drop by their
// policy what the host forwards. Ours never do. It asks the kernel anew.
func ForeignDrops() (chains []string, err error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("connect to nf_tables: %w", err)
	}
	defer func() { err = errors.Join(err, conn.CloseLasting()) }()
	all, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	for _, c := range all {
		if c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop && routes(c.Table.Family) {
			chains = append(chains, fmt.Sprintf("%s %s %s", familyName(c.Table.Family), c.Table.Name, c.Name))
		}
	}
	return chains, nil
}

// routes tells whether tables of a family see what is routed.
func routes(f nftables.TableFamily) bool {
	return f == nftables.TableFamilyIPv4 || f == nftables.TableFamilyIPv6 || f == nftables.TableFamilyINet
}

// familyName is how nft writes a family.
func familyName(f nftables.TableFamily) string {
	switch f {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	}
	return "inet"
}
