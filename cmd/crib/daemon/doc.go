// Package daemon puts crib together: it is the only place that names the
// implementations of what package sandbox needs.
//
// [Open] makes the parts, in memory, under the lock of the root. [Daemon.Serve]
// listens, recovers, tells systemd, and serves until its context ends; then it
// drains the calls that run and leaves the pods alone. [Daemon.Reset] gives the
// host back instead.
//
// # Start, in this order
//
//	sockets        Version and Status answer at once, all else is Unavailable
//	pod CIDRs      of the configuration, else as the kubelet last gave them
//	recovery       package sandbox
//	ready          sd_notify, all calls answer
//	loops          owed teardowns, sweeps, conflist watch, syncing of records
package daemon
