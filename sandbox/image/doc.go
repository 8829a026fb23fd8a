// Package image says what an image is to crib: one id, its references, and what
// a container inherits from it. It is pure: names and values; sandbox/engine
// fetches and unpacks.
//
// # Invariants
//
//   - An image has one id, the digest of its configuration ("sha256:…"). Pull,
//     status and list, and the status of containers, all use this one.
//   - A reference is normalised once, at the edge: "busybox" is
//     docker.io/library/busybox:latest everywhere behind it.
package image
