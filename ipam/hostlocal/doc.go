// Package hostlocal keeps a directory in the format of the CNI plugin
// host-local, as a mirror of what package ipam hands out: for people, who look
// there, and for host-local binaries that serve from the same range beside us.
//
//	<dir>/<address>            "<container id>\r\n<interface name>", mode 0600
//	<dir>/last_reserved_ip.<i> the address given last from the ith range
//	<dir>/lock                 the flock that everybody holds while files change
//
// # Types
//
// [Dir] is such a directory, [Entry] one reservation in it.
//
// # Invariants
//
//   - A file of another's is neither changed nor removed, but by Replace.
//   - The flock is held only within a call, and waited for a few seconds at
//     most: a host-local binary waits for it without limit.
//   - Nothing but the files above is ever in the directory by our doing.
//
// # Crash
//
// A crash between the making of a file and its content leaves it empty. An
// empty file, and one whose content cannot be an id (zeroes after a power cut),
// stands for a free address: Claim takes it over. The directory is no source of
// truth; what is in it without a record is the caller's to release at start.
//
// # Decisions
//
// 1. Files are made with O_EXCL under the flock. Context: two programs reserve
// in one directory. Choice: both guards. Rejected: the flock alone, which says
// nothing about files made in earlier times; O_EXCL alone, since taking over an
// empty file is two steps. Consequence: a claim costs four system calls more.
package hostlocal
