package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/crib-runtime/crib/network"
)

// fill puts what ADD returned into the attachment.
func fill(a *network.Attachment, d detail, answer types.Result) error {
	result, err := types100.NewResultFromResult(answer)
	if err != nil {
		return fmt.Errorf("understand the plugin's result: %w", err)
	}
	if err := fillAddresses(a, result); err != nil {
		return err
	}
	fillLinks(a, result.Interfaces)
	if d.Result, err = json.Marshal(answer); err != nil {
		return fmt.Errorf("encode the plugin's result: %w", err)
	}
	a.Detail, err = d.encode()
	return err
}

// fillLinks takes the MAC of the pod's interface, and as the host's end the last
// link outside of a namespace: plugins list the bridge before the pod's own link.
func fillLinks(a *network.Attachment, links []*types100.Interface) {
	a.MAC, a.HostInterface = "", ""
	for _, link := range links {
		switch {
		case link.Sandbox == "":
			a.HostInterface = link.Name
		case link.Name == a.Interface:
			a.MAC = link.Mac
		}
	}
}

// fillAddresses takes the addresses of the pod's interface, and at most one
// gateway for each family.
func fillAddresses(a *network.Attachment, result *types100.Result) error {
	a.Addresses, a.Gateways = nil, nil
	seen := make(map[bool]bool) // by Is4
	for _, ip := range result.IPs {
		mine, err := belongs(ip, result.Interfaces, a.Interface)
		if err != nil {
			return err
		}
		if !mine {
			continue
		}
		prefix, err := prefixOf(ip)
		if err != nil {
			return err
		}
		a.Addresses = append(a.Addresses, prefix)
		gateway, ok := netip.AddrFromSlice(ip.Gateway)
		if gateway = gateway.Unmap(); ok && !seen[gateway.Is4()] {
			seen[gateway.Is4()] = true
			a.Gateways = append(a.Gateways, gateway)
		}
	}
	return nil
}

// belongs tells whether an address is the pod's. One without an interface is.
func belongs(ip *types100.IPConfig, links []*types100.Interface, ifname string) (bool, error) {
	if ip.Interface == nil {
		return true, nil
	}
	at := *ip.Interface
	if at < 0 || at >= len(links) {
		return false, fmt.Errorf("plugin's result: address %s is on interface %d of %d: %w",
			ip.Address.String(), at, len(links), errdefs.ErrUnknown)
	}
	return links[at].Name == ifname && links[at].Sandbox != "", nil
}

func prefixOf(ip *types100.IPConfig) (netip.Prefix, error) {
	addr, ok := netip.AddrFromSlice(ip.Address.IP)
	ones, bits := ip.Address.Mask.Size()
	addr = addr.Unmap()
	if !ok || bits != addr.BitLen() {
		return netip.Prefix{}, fmt.Errorf("plugin's result: %q is no address with a prefix length: %w",
			ip.Address.String(), errdefs.ErrUnknown)
	}
	return netip.PrefixFrom(addr, ones), nil
}
