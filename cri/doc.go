// Package cri speaks CRI v1 to the kubelet and to crictl: it translates messages
// to calls of packages sandbox and sandbox/container and back, and the classes of
// errors to gRPC codes. It has no state and no policy. It is the only package that
// knows cri-api.
//
// The contract that it keeps is the proto's, and what the kubelet enforces
// beyond it:
//
//   - NotFound is the only error that the kubelet forgives between List and
//     Status, so it is told for unknown ids and for nothing else.
//   - Stop and Remove of an unknown id are OK.
//   - Metadata, labels, annotations, runtime handler and namespace options are
//     echoed as they were given; a pod in the host's network says so.
//   - UpdateRuntimeConfig stores and returns: the kubelet repeats a refused call
//     ten times a second.
//   - Until recovery is done only Version and Status answer; all else is
//     Unavailable, which clients retry. Neighbours on the same server answer.
//   - Of a container's status no field is empty that the kubelet looks at, whatever
//     the record lacks; labels, annotations and mounts are as they were given.
//   - An image has one id in all answers, and one that is not there is nil.
//   - ExecSync tells a time-out by the code DeadlineExceeded, and fits what both
//     outputs have into one message; kubelets take 16 MiB.
//   - A call of a pod or container that its deadline is about to end is answered
//     with what it does and for whom it waits, and goes on.
//   - A bad field is InvalidArgument, and the text has the field's name.
//
// What is not implemented answers Unimplemented, which the kubelet can tell from
// a failure.
//
// # Decisions
//
//  1. A pod whose security context has no namespace options, as people write them
//     for crictl, gets no init. The proto's default is a shared PID namespace; the
//     init is started when a container asks for it. Rejected: a process for every
//     pod that never said it wants one.
//  2. A container without namespace options has the PID namespace of the proto's
//     default, the pod's, and the pod gets an init for it. Rejected: one of its own,
//     which is cheaper: as process 1 a program without a handler never gets the
//     stop signal, which surprises people who wrote no options.
//  3. A container whose pod has no log directory has no log. Rejected: refusing it,
//     since people's files for crictl are like that; and a path that begins
//     wherever the daemon was started.
//  4. A status shows the image by the name that the user wrote, not by the id that
//     the kubelet asks with: Pod statuses and `crictl ps` are for people.
//  5. Lists of statistics have the containers that run and could be read. Rejected:
//     one error for all, as kubelets then see no container at all. What a kernel does
//     not count is left out, and so is a rate of one sample: kubelets take 0 for true.
//  6. Metrics have cAdvisor's names and labels, and whole seconds, since CRI's values
//     have no fractions. A pod's own are those of its links; the sum of its containers
//     is what queries make. Rejected: a pod's cgroup as well, twice the size of an
//     answer that kubelets take up to 16 MiB of.
//  7. Lists in pieces are the lists, cut at 1 MiB: they are in memory as it is.
//     Only metrics are sent as they are read.
//  8. UpdatePodSandboxResources does nothing and says yes: see there.
package cri
