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

// rules returns the table, its chains and rules in the kernel's own words,
// handles included. The library cannot be asked: it does not understand all of
// our rules when it reads them (ct with a direction, in v0.3.0).
func (k *kernel) rules() (string, error) {
	var text strings.Builder
	table := attribute(unix.NFTA_TABLE_NAME, k.schema.table.Name)
	if err := k.ask(&text, unix.NFT_MSG_GETTABLE, 0, table); err != nil {
		return "", err
	}
	for _, c := range k.schema.chains {
		rules := append(attribute(unix.NFTA_RULE_TABLE, k.schema.table.Name), attribute(unix.NFTA_RULE_CHAIN, c.Name)...)
		chain := append(attribute(unix.NFTA_CHAIN_TABLE, k.schema.table.Name), attribute(unix.NFTA_CHAIN_NAME, c.Name)...)
		if err := k.ask(&text, unix.NFT_MSG_GETCHAIN, 0, chain); err != nil {
			return "", err
		}
		if err := k.ask(&text, unix.NFT_MSG_GETRULE, netlink.Dump, rules); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// attribute encodes a name.
func attribute(kind uint16, name string) []byte {
	e := netlink.NewAttributeEncoder()
	e.String(kind, name)
	raw, _ := e.Encode() // fails for what is longer than 64 KiB; the kernel refuses the empty request
	return raw
}

// ask sends one request about the table and writes the answers.
func (k *kernel) ask(text *strings.Builder, kind int, flags netlink.HeaderFlags, attributes []byte) error {
	answers, err := k.socket.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | flags,
		},
		Data: append([]byte{byte(k.schema.table.Family), unix.NFNETLINK_V0, 0, 0}, attributes...),
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
