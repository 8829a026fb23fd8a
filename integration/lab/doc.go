// Package lab runs a built crib for demos, tests and benchmarks: in namespaces of
// their own ([Private]), on sockets and in directories of their own ([Start]), and
// speaks CRI to it as a kubelet does. It also answers and asks inside of pods
// ([Listen], [Ping]), since there are no containers to do it.
//
// Nothing of it reaches the machine, but for cgroup directories below the parent
// that [Crib.Pod] gives to its pods, which [Crib.Stop] removes.
package lab
