// Package logpump is what stays with a container while there is no daemon: it
// reads the container's output, writes its log, hands the output to attached
// clients, and leaves behind how the container ended. crib-shim runs it; it
// knows FIFOs and files, and neither containerd nor an OCI runtime.
//
// # Promises
//
//   - The log has the format of CRI: "TIME STREAM TAG TEXT\n", TIME in RFC 3339
//     with nanoseconds, TAG F for a whole line and P for a part of one. Text over
//     16 KiB is cut into parts; a last line that does not end is a part.
//   - Whole log lines reach the file in one write each, or several in one. Nothing
//     is torn: what a full disk has cut off is taken back.
//   - The container is never blocked for long. What cannot be written is dropped
//     and counted, and writing goes on when it works again. A client that does not
//     read is dropped after a second.
//   - Reopen has created the file when it returns, or has changed nothing.
//
// # Types
//
// [Pump] serves one container, as [Config] says. [Register] lets a ttrpc server
// answer for pumps, [Client] asks. [Ended] is the end of a container, in a file; an
// [OOMWatch] tells what the exit code does not.
//
//	<Config.Dir>/in, out, err   FIFOs, for the process that starts the container
//	<Config.Dir>/exit.json      an Ended
//	<Config.Dir>/oom            path of the cgroup's file that counts OOM kills
//
// # When we crash
//
// With crib-shim its containers end, and the directory is removed by whoever
// made it. A daemon's crash changes nothing here.
//
// # Decisions
//
//   - FIFOs between the process that copies a container's pipes or terminal and
//     the pump, although both are crib-shim. Rejected: reading the pipes ourselves,
//     which needs another task service than containerd's. That comes with a leaner
//     shim; it costs one more copy, and buffers of 64 KiB.
//   - Attached clients are FIFOs that the daemon has made, not streams of the
//     connection: the pump needs no goroutine for a client, and the end of either
//     side is the kernel's to tell.
//   - While nothing comes, a stream holds a goroutine and no buffer.
//   - Messages are JSON in a well-known protobuf type: three small calls are not
//     worth a compiler of protocols.
//   - OOM kills are read while the container lives. Context: systemd removes a
//     scope's cgroup when its last process ends, and was faster than a look after
//     the end in three of three tries. Rejected: the count of the pod's cgroup, which
//     does not say which container. Consequence: an open file for each container.
package logpump
