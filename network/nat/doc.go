// Package nat masquerades pods and leads host ports to them, in one nftables
// table that it speaks to over netlink. It needs no nft and no iptables.
//
// # Promise
//
// The kernel's table holds what memory holds: the node's pod networks and the
// host ports of the pods that are published. A pod changes elements of maps and
// sets, never rules, in one transaction; whatever else happened to the table is
// mended by building it anew from memory, in one transaction too. No packet
// marks, no sockets, no state of its own on disk.
//
// # Types
//
// A [Table] is the table, made by [Open] with a [Config]. [Ports] is what a
// record says of one pod's host ports. The life of a pod's host ports is
//
//	Reserve    who owns which port, in memory; conflicts end here
//	Publish    into the kernel; UDP flows that lead elsewhere are forgotten
//	Unpublish  out of the kernel and out of memory
//
// At start come [Table.SetNetworks] and [Table.Restore]. [Table.Watch] tells of
// changes by others, [Table.Check] what they are, [Table.Ensure] undoes them.
//
// # Beside the table
//
// With [Config].AntiSpoofing a table of the same name in the bridge's family lets
// pods send from their own addresses only: sets of (link's name, link address, IP
// address), names, so that a link that is made again needs no change. ARP and
// neighbour advertisements must speak of those, too; router advertisements,
// redirects and what is not IP are dropped. Elements of a pod go in and out with
// its host ports, in one transaction.
//
// With [Config].LetThrough two rules of ours are at the end of others' chains that
// would drop, by their policy, what the host forwards for pods: no table of ours
// could overrule them. What their own rules drop stays dropped.
//
// # The table
//
// `nft list table inet crib` shows it, testdata/*.golden are such lists. Chains
// prerouting and output come right after the place of Service rules (priority
// -99), so that Services win, and look only at packets to the host's own
// addresses: first in the maps of ports with a host IP, then in those without.
// Chain postrouting masquerades what pods send to outside of no_masq; and, of
// the connections that came by a host port (set targets), those whose answers
// would not pass through the host: from pods, and from 127.0.0.0/8. Chain guard
// drops what the bridge brings in for 127.0.0.0/8: the sysctl route_localnet,
// which 127.0.0.1:<host port> needs, would let pods reach the host's loopback.
//
// # Invariants
//
//   - A host port (host IP, protocol, number) belongs to at most one pod; the
//     port without a host IP collides with the one of any host IP of its family.
//   - Elements in the kernel are those of published pods, or Healthy says why not.
//   - Nothing outside of the tables is changed, but for the UDP flows of our ports,
//     and others' chains as said above.
//
// # Crash
//
// The table stays and works on. The next process restores memory from records
// and swaps the table for one with exactly that. A transaction is atomic, so
// there is no half of one.
//
// # Decisions
//
// 1. Repair is a swap of the whole table. Context: elements that exist with
// another value (EEXIST), that are missing (ENOENT), a flushed ruleset, rules
// edited by hand. Choice: any error of a small transaction is answered by one
// that deletes and builds the table, as a restart does. Rejected: reading and
// mending by parts. Consequence: one path, used and tested at every start; it
// costs a few milliseconds at a thousand ports. Flows live in conntrack and go on.
//
// 2. The set targets holds the host port too, compared to the port of the
// flow's first packet. Context: `ct status dnat` from a pod to a pod is as well a
// Service's connection, which must keep its source. Rejected: the pod's address
// and port alone, which also match a Service of the same pod; packet marks.
//
// 3. IPv4 link-local is masqueraded, IPv6 link-local is not. Context: clouds serve
// metadata at 169.254.169.254 to the node's address only; fe80::/10 is never routed.
//
// 4. ::1 is left alone. Context: the kernel has no route_localnet for IPv6, so a
// connection to [::1]:<host port> would hang; without a rule it is refused.
//
// 5. A lock that is a channel with one token, apart from the mutex of memory.
// Context: a transaction can wait for another program's for seconds. Consequence:
// Reserve never waits for the kernel, the others give up when their ctx ends.
//
// 6. An ordinary table, not one with the flags owner and persist. Context: those
// survive `nft flush ruleset`. Rejected for now: the library writes no flags, and a
// table with an owner cannot be swapped in one transaction that does not give them;
// no person could edit the table in an emergency. Consequence: after a flush host
// ports are gone until Watch has told of it, a fifth of a second.
//
// 7. Small changes that wait for their turn are made together (queue.go). Context:
// ten pods that start at once wait for each other, three system calls each.
package nat
