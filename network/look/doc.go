// Package look asks the kernel about the networks of pods, for people: how links
// are, which way a packet goes, who is a neighbour. It changes nothing.
//
// # Promises
//
//   - Answers are of the moment, by netlink, and never from memory.
//   - What is not there is an error of class NotFound that names it.
//   - Nothing here is on the way of a pod: dumps are fine.
//
// # Types
//
// [Link] is a link, [Inside] what a pod has, [Hop] where a packet goes next.
//
// # Crashes
//
// There is nothing to be lost.
//
// # Decisions
//
//  1. A package beside network/bridge. Context: pods of other networks are looked at
//     in the same way. Rejected: methods of each driver.
package look
