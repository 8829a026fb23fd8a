package nat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// compare reads the table and says in words in what it first differs from what
// was built, with these elements. An empty text stands for no difference.
func (k *kernel) compare(elements []element) (difference string, err error) {
	err = k.with(func(c *nftables.Conn) error {
		rules, err := k.rules()
		if errors.Is(err, unix.ENOENT) {
			difference = "the table or a chain is gone"
			return nil
		}
		if err != nil {
			return fmt.Errorf("read chains: %w", err)
		}
		if rules != k.built {
			difference = "the chains have other rules"
			return nil
		}
		difference = k.compareElements(c, elements)
		return nil
	})
	return difference, err
}

// rules returns the chains and rules in the kernel's own words, handles
// included. The library cannot be asked: it does not understand all of our
// rules when it reads them (ct with a direction, in v0.3.0).
func (k *kernel) rules() (string, error) {
	var text strings.Builder
	for _, chain := range k.schema.chains {
		for _, r := range []struct {
			kind, tableName, chainName int
			flags                      netlink.HeaderFlags
		}{
			{unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, 0},
			{unix.NFT_MSG_GETRULE, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, netlink.Dump},
		} {
			attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
				{Type: uint16(r.tableName), Data: []byte(k.schema.table.Name + "\x00")},
				{Type: uint16(r.chainName), Data: []byte(chain.Name + "\x00")},
			})
			if err != nil {
				return "", err
			}
			if err := k.ask(&text, r.kind, r.flags, attrs); err != nil {
				return "", err
			}
		}
	}
	return text.String(), nil
}

// ask sends one request about the table and writes the answers.
func (k *kernel) ask(text *strings.Builder, kind int, flags netlink.HeaderFlags, attrs []byte) error {
	answers, err := k.socket.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | flags,
		},
		Data: append([]byte{byte(k.schema.table.Family), unix.NFNETLINK_V0, 0, 0}, attrs...),
	})
	for _, m := range answers {
		text.Write(m.Data[min(4, len(m.Data)):]) // behind the header, which has the ruleset's generation
	}
	return err
}

func (k *kernel) compareElements(c *nftables.Conn, elements []element) string {
	want := map[string]map[element]bool{}
	for _, e := range elements {
		if want[e.set] == nil {
			want[e.set] = map[element]bool{}
		}
		want[e.set][e] = true
	}
	for _, set := range k.schema.sets {
		got, err := c.GetSetElements(set)
		if err != nil || !same(set.Name, got, want[set.Name]) {
			return fmt.Sprintf("set %s has other elements", set.Name)
		}
	}
	return ""
}

func same(set string, got []nftables.SetElement, want map[element]bool) bool {
	for _, e := range got {
		if !want[element{set: set, key: string(e.Key), value: string(e.Val), end: e.IntervalEnd}] {
			return false
		}
	}
	return len(got) == len(want)
}
