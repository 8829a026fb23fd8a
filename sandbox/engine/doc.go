// Package engine is containerd as a library: it runs the processes of pods.
//
// The engine is embedded by default: containerd's service plugins in our
// process, on our own gRPC and ttrpc servers. With Config.Address it is a
// containerd that runs already. After [Open] both are used through the same
// client, so there is one way to do each thing.
//
// # Types
//
// [Config] says which engine to open, [Engine] is the open one, [Info] tells
// about it. [API] puts its services on somebody else's server. [Init] is process 1 of a pod whose containers share a PID namespace:
// a container whose id is the pod's, whose root is a read-only bind of a
// directory with nothing but cmd/crib-init, without image or snapshot.
//
// The containers of pods are a [container.Launch] each; Engine is what package
// container calls its Tasks and its Inside. Output, logs and the ends of containers
// are crib-shim's, by package logpump: see there.
//
// Images are values of package image. What an image is, is read from its content
// and never kept in a second place: ctr and kind load and remove images beside us.
// The root of a container is a snapshot with the container's id as its key.
//
// # Promises
//
//   - StartInit and StopInit are idempotent, and exclude each other for a pod.
//   - StopInit needs no record of what was started. It works on a half-made
//     init, on one that has ended, and when the shim is dead.
//   - Containers bear the label io.crib.pod; [Engine.Inits] finds them by it.
//     What others keep in the namespace k8s.io is never touched.
//   - Containers of other clients, in any namespace, outlive the engine as ours do,
//     and are there when it is open again. Those of runc's runtime get our shim.
//   - Start and Delete of the containers of one pod exclude each other. They share a
//     shim, which the first start brings up and Release or StopInit ends; an external
//     engine's ends with its last container. Delete works when the shim is dead, and
//     leaves no process, mount, bundle or cgroup.
//   - Wait answers when the output is in the log, and answers the same after a
//     restart. [Harvest] knows the ends before Open.
//   - Exec and Attach leave no goroutine, descriptor, FIFO or process, but for a
//     Read or Write of the caller's that does not return. The end of its context
//     kills an exec with all that it has started and that can be found: its
//     descendants, its session, and what holds its output.
//   - Two engines of one machine do not meet: everything is below Root and
//     State, the OCI runtime's state too. A second one on the same Root is refused.
//   - An image that is shown is whole: index, manifest and configuration are what
//     their digests say, and every layer is there. One that was pulled or imported
//     is unpacked, and what is unpacked is on disk.
//   - Equal pulls at the same time are one, which ends when nobody waits for it.
//     It is never slower than the configured pace.
//   - No plugin that owns something of the whole process is loaded, so that an
//     engine can be closed and opened again, and two can be open.
//
// # When we crash
//
// Shims and containers go on. The next Open connects to the shims again. A task
// without a process, as one that was created and never started, or one that
// ended meanwhile, is deleted by containerd at Open, exit code included: who
// wants that reads it before. What then is left of an init is its container's
// record, which Inits names and StopInit deletes. Of a container its directory is
// left, with its end; Containers names it and Delete deletes it. An exec goes on
// without anybody who reads its output. What a pull had fetched stays
// for a day under its lease; the next pull goes on from there. A root that was
// being prepared is found by [Engine.Roots]. A shim that was being started, which no
// bundle knows yet, is ended at the next Open; the cgroup of a container whose OCI
// runtime died with us is removed with the container. After a power cut, CheckImages drops
// content that did not get to the disk.
//
//	<Root>/LOCK                             held while open
//	<Root>/last-stop.json                   when everything was on disk for sure
//	<Root>/io.containerd.…/                 content, snapshots, metadata
//	<State>/containerd.sock, ….sock.ttrpc   our own client; events from shims
//	<State>/s/                              sockets of shims
//	<State>/p/<pod>/                        of a pod's shim: its address, pid, what it said
//	<State>/crib-shim                       link to Config.Shim, gone while closed
//	<State>/init/                           the root of every init
//	<State>/c/<id>/                         of a container: its end, FIFOs; see logpump
//	<State>/x/                              FIFOs of execs and clients that begin
//	<State>/oci/                            the OCI runtime's state
//	<State>/volumes/<id>/                   images that are volumes of a container, mounted
//	<State>/roots/                          roots of containers while they are prepared
//	<State>/io.containerd.runtime.v2.task/  bundles; named ….away for a moment of Close
//
// # Decisions
//
//   - Our client reaches the embedded engine through a socket, not by calling
//     services in memory. Rejected: client.WithInMemoryServices, which is 0.1 ms
//     a call faster; then external and embedded would be two things to test.
//   - The record and the task are made by the services' own calls. Rejected:
//     client.NewContainer and NewTask, which take a lease (two more transactions,
//     each with an fsync) and a killing delete (`kill --all`, 4 ms) for nothing.
//   - Close disconnects from shims by taking away, for the moment, the directory of
//     the bundles, in which the shim's binary would be run, since containerd deletes
//     what it loses contact with; and the name by which our binary is known, until
//     the next Open. Rejected: the name alone, with which containers of other clients
//     ended with the daemon, by the shim of theirs; leaving the connections open, two
//     goroutines and three descriptors for each task. The link also makes the path
//     that bundles remember independent of where a new version is installed.
//   - A task that other clients make for runc's runtime is told our shim where it
//     names none. Rejected: a link with containerd's name for it in PATH, which is
//     the containerd package's.
//   - Shims inherit our environment and our cgroup, as containerd's do: whoever
//     starts the daemon clears NOTIFY_SOCKET, and its unit has KillMode=process.
//   - The pod's shim is started by us, with its listening socket, and told to
//     containerd as a sandbox is: no `shim start` for each container (9 ms), nobody
//     waits for it to listen, and a container that is restarted finds it. Its standard
//     error is a file, which is logged when it ends. A daemon that starts ends shims
//     without a container. Rejected: containerd's records of sandboxes, a transaction
//     for each pod; starting it when the container is created, which only moves the
//     work. With an external containerd all that is containerd's own.
//   - A shim that hangs makes StopInit fail after 30 s with everything kept; it is
//     not killed. Rejected: looking for its pid by command line. That is done only
//     for shims whose socket no bundle names: those have no container, and nobody
//     else will end them. A machine sees the shims of nodes in its containers, with
//     the same names: ours are those that see our state directory at its path.
//   - What the shim shall do for a container is in annotations of its spec, and what
//     it leaves for us in a directory of ours: the bundle is containerd's, which
//     deletes it, exit code included. Rejected: asking shims for the state of tasks
//     before Open; it finds out nothing more.
//   - While a container starts, the daemon writes its pid to its own cgroup every
//     2 ms, which saves the OCI runtime an RCU grace period; see grace.go. Rejected:
//     rcu_expedited, which is the whole host's and the operator's.
//   - FIFOs of execs and clients lose their names as soon as the shim has opened
//     them, so that a crash leaves none.
//   - The tree of an exec is found by looking, with everything stopped while we look.
//     Rejected: a cgroup for each exec, which OCI runtimes do not offer through a
//     shim; a mark in the environment, which containers would see.
//   - The size of writable layers is kept in a file and measured again the later,
//     the longer that takes. Rejected: a cache that a restart empties.
//   - Only a CRI plugin that serves (io.containerd.grpc.v1.cri) makes an external
//     containerd unusable. Its parts (io.containerd.cri.v1.*) may be loaded: they
//     do nothing by themselves, and the usual way to disable CRI leaves them.
//   - What a shim writes to its log goes to our standard error, not to slog:
//     containerd copies it there itself and offers no other way.
//   - Pulls are done by containerd's client and not by its transfer service, which
//     has no registry tokens, one directory of hosts.toml, and no count of what
//     comes. Content passes through our own socket: 300 MB pulled and unpacked in
//     0.9 s on two cores.
//   - Layers are synced before they count as unpacked, whoever unpacks them, so that
//     CheckImages need not look at them. Rejected: unpacking all again after a power cut.
//   - Layers stay packed as well as unpacked. Rejected: discarding them, which
//     halves the space; then nothing could be exported or unpacked again.
//   - Roots of containers are mounted volatile, without syncing. That works once
//     for a root, so that preparing it mounts it without.
package engine
