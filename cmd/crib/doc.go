// Command crib is the container runtime's daemon and the operator's commands.
//
//	crib serve     the daemon; package daemon puts it together
//	crib pods      pods, their addresses, how long their start took, what is owed
//	crib ops       what is in flight, at which stage, and what is owed
//	crib events    what happens, as it happens
//	crib net       networks; show, map, check, trace
//	crib images    import, export, list, rm
//	crib reset     gives the host back; the daemon must not run
//	crib config    default, dump, check
//	crib check     what the host lacks; package host looks
//
// pods, net and images ask the running daemon by its admin socket (package
// admin); they need neither CRI nor the daemon's files.
package main
