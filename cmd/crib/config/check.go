package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The checks return what is wrong with a value, and what would be right, as the
// rest of a sentence that begins with the key.

func isVersion(v int) error {
	if v != 1 {
		return fmt.Errorf("is %d, which this crib does not know; want 1", v)
	}
	return nil
}

func isAbsolute(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("is %q; want an absolute path", path)
	}
	if path == "/" {
		return errors.New(`is "/"; want a directory below it`)
	}
	return nil
}

// maxSocket is what sockaddr_un has room for, less the final zero.
const maxSocket = 107

func isSocket(path string) error {
	if len(path) > maxSocket {
		return fmt.Errorf("is a path of %d bytes; the kernel takes at most %d for a socket", len(path), maxSocket)
	}
	if strings.HasPrefix(path, "unix:") {
		return fmt.Errorf("is %q; want the path alone, without unix://", path)
	}
	return isAbsolute(path)
}

func isGroup(name string) error {
	if name == "" || strings.ContainsAny(name, ": \t\n") {
		return fmt.Errorf("is %q; want the name or number of a group", name)
	}
	return nil
}

func isProgram(name string) error {
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		return fmt.Errorf("is %q; want an absolute path, or a name alone", name)
	}
	return nil
}

func isPrimary(name string) error {
	// What CNI allows for the name of a network.
	if !regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`).MatchString(name) {
		return fmt.Errorf(`is %q; want "auto", "builtin" or the name of a CNI network`, name)
	}
	return nil
}

func isLinkName(name string) error {
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n") {
		return fmt.Errorf("is %q; want a link's name: 1 to 15 bytes, no slash, colon or space", name)
	}
	return nil
}

func isMTU(mtu int) error {
	if mtu != 0 && (mtu < 576 || mtu > 65535) {
		return fmt.Errorf("is %d; want 576 to 65535, or 0 for that of the uplink", mtu)
	}
	return nil
}

func isTimeout(d time.Duration) error {
	if d < time.Second || d > 10*time.Minute {
		return fmt.Errorf("is %s; want 1s to 10m", d)
	}
	return nil
}

func areDirectories(paths []string) error {
	if len(paths) == 0 {
		return errors.New("is empty; want at least one directory")
	}
	for i, p := range paths {
		if err := isAbsolute(p); err != nil {
			return fmt.Errorf("entry %d %w", i+1, err)
		}
	}
	return nil
}

func areSubnets(subnets []netip.Prefix) error {
	for i, p := range subnets {
		if p != p.Masked() {
			return fmt.Errorf("entry %d is %s, an address within a subnet; want %s", i+1, p, p.Masked())
		}
	}
	return nil
}

// arePodRanges wants subnets with room for pods that do not overlap.
func arePodRanges(ranges []netip.Prefix) error {
	if err := areSubnets(ranges); err != nil {
		return err
	}
	for i, p := range ranges {
		if p.Addr().Is4In6() || p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			return fmt.Errorf("entry %d is %s, which pods cannot have; want a subnet of unicast addresses", i+1, p)
		}
		if p.Addr().BitLen()-p.Bits() < 2 {
			return fmt.Errorf("entry %d is %s, too small for a pod and its gateway; want /%d or a larger one",
				i+1, p, p.Addr().BitLen()-2)
		}
		if at := slices.IndexFunc(ranges[:i], p.Overlaps); at >= 0 {
			return fmt.Errorf("entry %d is %s, which overlaps with %s; want subnets apart", i+1, p, ranges[at])
		}
	}
	return nil
}

func oneOf(words ...string) func(string) error {
	return func(word string) error {
		if !slices.Contains(words, word) {
			return fmt.Errorf("is %q; want one of %s", word, strings.Join(words, ", "))
		}
		return nil
	}
}

func emptyOr(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func isRate(n int) error {
	if n < 0 {
		return fmt.Errorf("is %d; want a number of bytes a second, 0 for none", n)
	}
	return nil
}

func isHostPort(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("is %q; want a host and a port, such as \"127.0.0.1:4317\"", text)
	}
	return nil
}

func isPerMillion(n int) error {
	if n < 0 || n > 1_000_000 {
		return fmt.Errorf("is %d; want 0 to 1000000, of a million calls", n)
	}
	return nil
}
