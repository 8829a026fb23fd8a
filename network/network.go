package network

import (
	"encoding/json"
	"net/netip"
)

// Pod is what a network is told about a pod.
type Pod struct {
	ID           string // of the sandbox: 64 hex digits
	Namespace    string
	Name         string
	UID          string
	Netns        string // path of the pinned network namespace
	CgroupParent string
	Annotations  map[string]string
	Ports        []PortMapping
	DNS          DNS // for plugins that want it; the pod's resolv.conf is not the network's
}

// DNS is the resolver configuration that was asked for a pod.
type DNS struct {
	Servers  []string
	Searches []string
	Options  []string
}

// PortMapping is one host port of a pod.
type PortMapping struct {
	Protocol      Protocol   `json:"protocol"`
	HostIP        netip.Addr `json:"hostIP"` // the zero Addr stands for every address of the host
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
}

// Protocol is a transport protocol, in the lower-case form of /etc/protocols.
type Protocol string

// The protocols that CRI has.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// Attachment says how one network meets one pod.
type Attachment struct {
	Driver        string          `json:"driver"`                  // which implementation undoes it: "bridge" or "cni"
	Network       string          `json:"network"`                 // the network's name
	Interface     string          `json:"interface"`               // inside of the pod, as "eth0"
	HostInterface string          `json:"hostInterface,omitempty"` // the other end, where the driver knows it
	MAC           string          `json:"mac,omitempty"`           // of the pod's end
	Addresses     []netip.Prefix  `json:"addresses,omitempty"`     // with the prefix length of their subnet
	Gateways      []netip.Addr    `json:"gateways,omitempty"`      // at most one for each family
	Detail        json.RawMessage `json:"detail,omitempty"`        // what only the driver understands
}

// Held is what a pod's record holds: the attachments that were planned or made.
type Held struct {
	Pod         Pod
	Attachments []Attachment
}

// Save puts changed attachments into the pod's record. A driver calls it from
// Attach, with all attachments that it was given, before it makes something
// that the record does not name yet.
type Save func([]Attachment) error

// Status is a network's cached verdict.
type Status struct {
	Ready   bool   `json:"ready"`             // false only if no new pod could get this network and nobody is about to mend it
	Reason  string `json:"reason,omitempty"`  // one CamelCase word when not ready
	Message string `json:"message,omitempty"` // for people: numbers, cause, remedy; may be set when ready
}
