// Package netns makes, pins, enters and unpins the namespaces of pods. It is the
// only package that moves a thread into another namespace.
//
// # Promise
//
// [Create] makes the network, IPC, UTS and user namespaces of a pod and pins each by a
// bind mount, so that they live without a process. It leaves lo up, the hostname
// and the sysctls set; after an error nothing stays. [Remove] unpins and succeeds
// when there is nothing to remove. [Check] says whether the pins still hold the
// namespaces that were made, [Heal] makes those again that were unmounted while a
// process is inside. [Do] runs a function inside a network namespace.
// [Share] prepares the directory of the pins as `ip netns` does, [List] finds
// pins that no record names.
//
// # Types
//
// A [Spec] says what to make and where to pin it, [Pins] what was made: paths and
// inode numbers, for the pod's record.
//
// # Invariants
//
//   - A thread that was moved is never used again: the goroutine on it ends while
//     it is locked to it, and the Go runtime destroys the thread (golang/go#28979).
//   - The process's main thread is never moved, since it cannot be destroyed: it
//     would stay in the pod's namespace, and keep it, until the process ends.
//   - Nothing here needs the namespace's creator: pins survive the daemon.
//
// # Crash
//
// A crash in Create leaves at most files and mounts at the paths of the spec, and
// Create removes what it finds there. A namespace without a pin goes with its
// thread. A reboot takes everything.
//
// # Decisions
//
// 1. A thread for each call (0.1 ms) instead of restoring threads: no restore can
// fail, and no goroutine can be resumed in the wrong namespace.
//
// 2. The main thread is avoided here instead of by an init in each main package:
// a goroutine that finds itself on it holds it and lets another one do the work.
// So tests and every other binary are safe too. A main package that moves threads
// by other means than this package still has to lock its main goroutine to the
// main thread in an init.
//
// 3. lo is set up here and not by a network, because every pod needs it, whatever
// its networks are.
//
// 4. A user namespace is made by a child that never runs a program, since Go cannot
// unshare one in a process with threads; containerd's function for that is used. It
// owns the others, and what only its own root may set is set as that.
package netns
