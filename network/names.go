package network

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Prefix begins every name that crib gives to something in the kernel.
const Prefix = "crib"

// HostLinkName returns the name of the host's end of a pod's link. It has the
// 15 characters that IFNAMSIZ leaves, 44 bits of them hash.
func HostLinkName(podID, ifname string) string {
	sum := sha256.Sum256([]byte(podID + "/" + ifname))
	return Prefix + hex.EncodeToString(sum[:])[:15-len(Prefix)]
}

// NetnsName returns the name of a pod's network namespace as `ip netns` shows it.
func NetnsName(podID string) string {
	return Prefix + "-" + podID[:min(16, len(podID))]
}

// InterfaceName returns the name of a pod's nth link: eth0, eth1 and so on.
func InterfaceName(n int) string {
	return "eth" + strconv.Itoa(n)
}
