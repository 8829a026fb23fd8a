// Package network says what it means that a pod is attached to a network:
// which addresses it has, what its links are called, which host ports lead to
// it. It is pure: values and names, no kernel, no files.
//
// # Types
//
// A [Pod] is what a network is told about a pod. An [Attachment] says how one
// network meets one pod; it is planned in memory, written into the pod's record
// before anything exists in the kernel, and suffices to undo everything later,
// without the network's configuration of that day. A [Held] is what a record
// holds after a restart. [Status] is a network's answer to the question whether
// new pods can be attached.
//
// # Verbs
//
// Each implementation (network/bridge, network/cni) is a driver with the same
// five verbs; package sandbox, which calls them, declares the interface:
//
//	Plan     chooses addresses and names, in memory only
//	Attach   makes the kernel match the attachments; idempotent
//	Detach   removes what they name and frees the addresses; idempotent, needs
//	         neither namespace nor configuration to be there
//	Restore  at start: claims what the records hold, sweeps what none names
//	Status   a cached verdict; never blocks
//
// # Invariants
//
//   - An address is in use if and only if a record names it.
//   - Every name in the kernel is derived from the pod's id ([HostLinkName],
//     [NetnsName]) and carries our prefix, so that it can be found without a
//     record.
package network
