// Package bridge is the network that crib has built in: a bridge with a veth for
// each pod, addresses from the node's pod CIDRs, host ports and masquerading by a
// firewall.
//
// # Promise
//
// Attach makes the kernel match a planned attachment, whatever it finds; Detach
// undoes one whatever is missing, and returns before the kernel has finished. What
// somebody breaks is repaired within seconds: the bridge, its addresses, sysctls,
// rules, either end of a pod's link, a pod's addresses and routes, the pin of its
// namespace, its reservation. A change of the CIDRs does not disturb the pods of the old ones. What
// is not ours is not touched: a foreign bridge is refused, former sysctl values
// are kept in a file and Reset gives them back.
//
// # Types
//
// A [Network] is made from a [Config] and a [Firewall]. Its verbs are those of
// package network; beside them [Network.SetCIDRs] feeds it, [Network.Serve] runs
// it, [Network.Ranges] tells its numbers, [Network.Repairs] what was repaired and
// [Network.Findings] what is wrong and stays so for now.
//
// # Repair
//
// fact.go is the pure core: what is wanted and what is there are sets of facts (a
// kind and name of a thing, a property, a value); they are compared, and what
// differs becomes actions. wanted.go makes the facts from memory, observe.go from
// the kernel and the directory; reconcile.go does the actions. events.go and
// watch.go say when: links, addresses, routes and sysctls of forwarding by netlink,
// in the pods' namespaces too; rules by nf_tables; mounts; the directory. journal.go
// remembers, and holds back what is undone again and again.
//
// # What is where
//
//	crib0                  the bridge; alias "crib network <name>"; the gateways' addresses
//	crib<11 hex digits>    a pod's link, the host's end; alias "<namespace>/<name> <id>"
//	eth0, in the pod       the pod's end; 0a:58: and the IPv4 address is its link address
//	<Dir>/<address>        host-local's reservations, a mirror
//	<Sysctls>              the host's values before ours
//
// # Invariants
//
//   - An address is in memory for a pod before its file is made, in the pod's
//     record before it is in the kernel, and free only after its link is down and
//     its host ports are closed.
//   - No dump, poll or sleep on the way of a pod: two batches of netlink messages.
//   - A subnet keeps its gateway, and is masqueraded, as long as it has a pod.
//   - Before Restore nothing is changed in the kernel.
//
// # Crash
//
// What is in the kernel goes on working. Restore takes over what the records
// name and deletes links of ours that none names. A bridge without an alias, from
// a crash right after its making, is recognised by its link address.
//
// # Decisions
//
// 1. Batches of our own instead of the calls of a library. Context: the library
// needs three messages and two look-ups for a port of a bridge. Consequence: a
// hundred lines in batch.go; the library does what is not on the way of a pod.
//
// 2. Detach sets the host's end down and leaves the deletion to the end of the
// namespace: deleting by hand waits for RCU, 16 to 32 ms each. What stays longer
// than two seconds is deleted in groups, and the log names who holds it.
//
// 3. Repair listens for changes, looks 200 ms later at what they concern, and at
// everything every two minutes: some sysctls send no message, and a lost one must
// not matter. Looks take a twentieth of the time at most. Messages that the start
// and end of pods bring are no reason to look. Rejected: a look every few seconds,
// which at hundreds of pods costs more than the pods do.
//
// 4. The link address of the bridge is derived from its first gateway: stable
// over its ports and over a repair, without a file.
//
// 5. route_localnet is on for the bridge, never for an uplink, so that host ports
// answer on 127.0.0.1; the firewall drops what pods send there.
//
// 6. Where pods have IPv6, their ports are not flooded with multicast, and the
// bridge is the querier that tells it who listens. Context: each pod's
// solicitations and reports go to all ports otherwise, O(n²) at a node's start.
// Rejected: suppression by neighbour entries, which does not work between ports
// that all have it. Consequence: between such pods, groups without membership
// reports (224.0.0.0/24, ff02::1) do not work. The groups of solicitations are
// joined for the pods, else the first packet to a new one waits a second for the
// second solicitation; a bridge passes none from pod to pod in its first 50 ms.
//
// 7. Where no pod has IPv6 the bridge neither asks for listeners nor notes them.
// Context: it sends five questions to each new port, which made the last of 1000
// pods three times as slow as the first. Rejected: fewer questions, of which the
// first is often lost. Consequence: IPv4 multicast goes to all pods.
//
// 8. A thing is repaired five times at once, then after 1, 2, 4 … seconds, up to
// five minutes; ten quiet seconds make up for one repair. Context: another manager
// that wants it otherwise. Status then says so.
//
// 9. A pod may have other addresses, routes and links than ours, and another
// default route: what it does with its rights is its own business. Its own address
// and one default route for each family are made again.
//
// 10. The flows of an address that a pod gives back are forgotten within a second,
// many pods' in one walk through the kernel's table, or before the next pod gets it.
// Its neighbours need not be told: the link address follows from the IP address.
package bridge
