package sandbox

import (
	"net/netip"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/ops"
)

// State is where a pod is in its life; the drawing is in doc.go.
type State string

// The states of a pod.
const (
	Creating State = "Creating" // recorded, being made; not shown to clients
	Ready    State = "Ready"    // all of it exists
	NotReady State = "NotReady" // dead, stopped or being stopped; only Remove follows
)

// Key names a pod as the kubelet does. Two sandboxes of one pod differ in Attempt.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Attempt   uint32 `json:"attempt"`
}

// String returns the key as logs and errors show it.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Spec is what was asked of Run. It is echoed to clients as it was given.
type Spec struct {
	Key
	Hostname     string                `json:"hostname"`
	LogDirectory string                `json:"logDirectory,omitempty"`
	DNS          DNS                   `json:"dns"`
	Ports        []network.PortMapping `json:"ports,omitempty"`
	Labels       map[string]string     `json:"labels,omitempty"`
	Annotations  map[string]string     `json:"annotations,omitempty"`
	Handler      string                `json:"handler,omitempty"` // RuntimeClass handler, as given
	CgroupParent string                `json:"cgroupParent,omitempty"`
	Sysctls      map[string]string     `json:"sysctls,omitempty"`
	Namespaces   Namespaces            `json:"namespaces"`
	Privileged   bool                  `json:"privileged,omitempty"`
}

// Namespaces says which namespaces of the host a pod uses, and whether its
// containers share one for processes, which then needs an init.
type Namespaces struct {
	HostNetwork bool `json:"hostNetwork,omitempty"`
	HostIPC     bool `json:"hostIPC,omitempty"`
	HostPID     bool `json:"hostPID,omitempty"`
	SharedPID   bool `json:"sharedPID,omitempty"`
	// Users are those of a user namespace; zero is the host's.
	Users netns.Users `json:"users,omitzero"`
}

// DNS is the content of the pod's resolv.conf. Empty means a copy of the host's.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// Pod is the record of a pod: everything that is needed to show it, to find it
// in the kernel and in the engine, and to undo it. Records are immutable once
// the [Manager] holds them.
type Pod struct {
	ID          string               `json:"id"` // 64 hex digits
	Spec        Spec                 `json:"spec"`
	State       State                `json:"state"`
	BootID      string               `json:"bootID"`
	CreatedAt   time.Time            `json:"createdAt"`
	Pins        netns.Pins           `json:"pins"`
	Attachments []network.Attachment `json:"attachments,omitempty"`
	Init        bool                 `json:"init,omitempty"`     // it has, or is to get, a process of its own
	InitPID     uint32               `json:"initPID,omitempty"`  // in the host's namespace
	Stopping    bool                 `json:"stopping,omitempty"` // the teardown was asked for
	Released    bool                 `json:"released,omitempty"` // the teardown is complete
	Timeline    []ops.Stage          `json:"timeline,omitempty"` // of its start
}

// IPs returns the addresses of the pod's first link in the order of its network's
// ranges: those are the pod's for the kubelet. A pod in the host's network has none.
func (p *Pod) IPs() []netip.Addr {
	if len(p.Attachments) == 0 {
		return nil
	}
	var ips []netip.Addr
	for _, prefix := range p.Attachments[0].Addresses {
		ips = append(ips, prefix.Addr())
	}
	return ips
}

// network returns what a network is told about the pod.
func (p *Pod) network() network.Pod {
	return network.Pod{
		ID:           p.ID,
		Namespace:    p.Spec.Namespace,
		Name:         p.Spec.Name,
		UID:          p.Spec.UID,
		Netns:        p.Pins.Net.Path,
		CgroupParent: p.Spec.CgroupParent,
		Annotations:  p.Spec.Annotations,
		Ports:        p.Spec.Ports,
		DNS:          network.DNS(p.Spec.DNS),
	}
}
