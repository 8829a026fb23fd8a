// Package host looks at the machine and says what crib and its pods need that is
// missing, and the command that mends it.
//
// [Check] reads what the kernel shows of itself and changes nothing. What cannot be
// read is tried: [Inside], called by a child process in network and mount
// namespaces of its own, makes the built-in network and an overlay there.
//
// # Promises
//
//   - No daemon need run, and one that runs is not disturbed.
//   - A check that cannot be done is a finding of its own, never an error: the others
//     are made all the same.
//   - [Missing] is for what makes pods impossible, [Warning] for what will hurt.
//
// # Crashes
//
// Everything that is made is in the child's namespaces and goes with it.
//
// # Decisions
//
//  1. Parts of the kernel are tried instead of looked for. Context: what is built in
//     is nowhere listed, what is listed may not load. Rejected: reading the kernel's
//     configuration, which many nodes do not have.
//  2. A forward policy of others that drops is a warning. Context: it may be what the
//     operator wants, with rules that let pods through.
package host
