// Package counters reads what went over the links of this network namespace: one
// dump of netlink for all of them, in which no namespace is entered.
//
// # Promise
//
// [Read] returns the counters of every link by its name. It changes nothing and
// keeps nothing. A dump that was interrupted by a new link has the others all the
// same: each of its lines is true.
//
// # Decisions
//
//  1. The host's end of a veth is read and its directions are swapped
//     ([Counters.Swapped]): what it receives the pod has sent. Rejected: entering
//     each pod's namespace, a thread and a socket for each. Consequence: what a pod
//     sends to itself (lo) is not seen, nor is what was dropped at its own end.
//  2. Only two attributes of each link are decoded. Rejected: the library's list,
//     which builds a value of some 2 KiB for each link.
package counters
