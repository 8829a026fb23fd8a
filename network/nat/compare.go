package nat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/crib-runtime/crib/network"
	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// compare reads the table and says in what it differs from what was built, with
// these elements. None stands for no difference.
func (k *kernel) compare(elements []element) (found []network.Finding, err error) {
	err = k.with(func(c *nftables.Conn) error {
		rules, err := k.rules()
		if errors.Is(err, unix.ENOENT) {
			found = finding(k.schema.table, "", "the table or a chain is gone")
			return nil
		}
		if err != nil {
			return fmt.Errorf("read chains: %w", err)
		}
		if rules != k.built {
			found = finding(k.schema.table, "", "the chains have other rules")
		}
		found = append(found, k.compareElements(c, elements)...)
		return nil
	})
	return found, err
}

// finding is what is wrong with the table, or with one set of it.
func finding(table *nftables.Table, set, text string) []network.Finding {
	object := strings.TrimSpace(titleOf(table) + " " + set)
	return []network.Finding{{Kind: "table", Object: object, Text: text}}
}

// rules returns the table, its chains and rules in the kernel's own words,
// handles included. The library cannot be asked: it does not understand all of
// our rules when it reads them (ct with a direction, in v0.3.0).
func (k *kernel) rules() (string, error) {
	var text strings.Builder
	for _, t := range k.schema.tables() {
		if err := k.ask(&text, question{t.Family, unix.NFT_MSG_GETTABLE, 0}, attribute(unix.NFTA_TABLE_NAME, t.Name)); err != nil {
			return "", err
		}
	}
	for _, c := range k.schema.chains {
		rules := append(attribute(unix.NFTA_RULE_TABLE, c.Table.Name), attribute(unix.NFTA_RULE_CHAIN, c.Name)...)
		chain := append(attribute(unix.NFTA_CHAIN_TABLE, c.Table.Name), attribute(unix.NFTA_CHAIN_NAME, c.Name)...)
		if err := k.ask(&text, question{c.Table.Family, unix.NFT_MSG_GETCHAIN, 0}, chain); err != nil {
			return "", err
		}
		if err := k.ask(&text, question{c.Table.Family, unix.NFT_MSG_GETRULE, netlink.Dump}, rules); err != nil {
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

// question is the kind of a request.
type question struct {
	family nftables.TableFamily
	kind   int
	flags  netlink.HeaderFlags
}

// ask sends one request about the table and writes the answers.
func (k *kernel) ask(text *strings.Builder, q question, attributes []byte) error {
	answers, err := k.execute(q, attributes)
	for _, m := range answers {
		text.Write(m.Data[min(4, len(m.Data)):]) // behind the header, which has the ruleset's generation
	}
	return err
}

// execute sends one request and returns the answers.
func (k *kernel) execute(q question, attributes []byte) ([]netlink.Message, error) {
	return k.socket.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | q.kind),
			Flags: netlink.Request | q.flags,
		},
		Data: append([]byte{byte(q.family), unix.NFNETLINK_V0, 0, 0}, attributes...),
	})
}

// compareElements says in which sets there are other elements.
func (k *kernel) compareElements(c *nftables.Conn, elements []element) (found []network.Finding) {
	want := map[string][]element{}
	for _, e := range elements {
		want[e.set] = append(want[e.set], e)
	}
	for _, set := range k.schema.sets {
		got, err := c.GetSetElements(set)
		if err != nil {
			found = append(found, finding(set.Table, set.Name, "the set is gone")...)
			continue
		}
		var is []element
		for _, e := range got {
			is = append(is, element{set: set.Name, key: string(e.Key), value: string(e.Val), end: e.IntervalEnd})
		}
		if text := differences(want[set.Name], is); text != "" {
			found = append(found, finding(set.Table, set.Name, text)...)
		}
	}
	return found
}

// named is how many elements a finding names.
const named = 3

// differences says in nft's language which elements are missing and which are
// foreign, "" for none.
func differences(want, is []element) string {
	missing, foreign := subtract(want, is), subtract(is, want)
	var parts []string
	for word, list := range map[string][]element{"missing": missing, "foreign": foreign} {
		var texts []string
		for _, e := range list[:min(len(list), named)] {
			texts = append(texts, e.String())
		}
		if more := len(list) - named; more > 0 {
			texts = append(texts, fmt.Sprint(more, " more"))
		}
		if len(texts) > 0 {
			parts = append(parts, word+": "+strings.Join(texts, ", "))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// subtract returns what is in a and not in b, in order.
func subtract(a, b []element) []element {
	there := map[element]bool{}
	for _, e := range b {
		there[e] = true
	}
	var out []element
	for _, e := range a {
		if !there[e] {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b element) int { return strings.Compare(a.key+a.value, b.key+b.value) })
	return out
}
