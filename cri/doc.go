// Package cri speaks CRI v1 to the kubelet and to crictl: it translates messages
// to calls of package sandbox and back, and the classes of errors to gRPC codes.
// It has no state and no policy. It is the only package that knows cri-api.
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
//     Unavailable, which clients retry.
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
package cri
