package nat

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// String returns the element as nft writes it. An interval shows its first
// address only.
func (e element) String() string {
	text := strings.Join(words(e.key, e.fields()), " . ")
	if e.value != "" {
		text += " : " + strings.Join(words(e.value, "ap"), " . ")
	}
	if e.end {
		text = "up to " + text
	}
	return "{ " + text + " }"
}

// fields says of what the keys of the set consist: a is an address, l a protocol,
// p a port, n a link's name, m a link address.
func (e element) fields() string {
	switch strings.TrimRight(e.set, "46") {
	case "ports":
		return "lp"
	case "host_ports":
		return "alp"
	case "targets":
		return "alpp"
	case "sources":
		return "nma"
	}
	return "a"
}

// words reads the fields of a key. Of an address the length follows from the rest.
func words(key, fields string) []string {
	var out []string
	sizes := map[rune]int{'l': 4, 'p': 4, 'n': unix.IFNAMSIZ, 'm': 8}
	address := len(key)
	for _, kind := range fields {
		address -= sizes[kind]
	}
	sizes['a'] = address
	for _, kind := range fields {
		size := sizes[kind]
		if len(key) < size || size < 4 {
			return append(out, "?")
		}
		out = append(out, word(kind, []byte(key[:size])))
		key = key[size:]
	}
	return out
}

// word reads one field.
func word(kind rune, raw []byte) string {
	switch kind {
	case 'a':
		addr, _ := netip.AddrFromSlice(raw)
		return addr.String()
	case 'n':
		return string(bytes.TrimRight(raw, "\x00"))
	case 'm':
		return net.HardwareAddr(raw[:6]).String()
	case 'p':
		return strconv.Itoa(int(binary.BigEndian.Uint16(raw)))
	}
	switch raw[0] {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(raw[0]))
}
