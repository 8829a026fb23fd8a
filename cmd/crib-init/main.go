// Command crib-init is process 1 of a pod whose containers share a PID
// namespace. It reaps orphans and ends on SIGTERM or SIGINT; the kernel then
// kills what is left in the namespace.
//
// It is the only file of its root, so it is static, opens nothing and needs
// neither /proc nor a capability.
//
// # Decisions
//
//   - It does not hand signals on: the engine stops containers one by one, and
//     process 1 is the last to go.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// One channel each: a burst of dead children must not fill up the place of
	// the signal to end. One pending SIGCHLD stands for any number of them.
	end, child := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(child, syscall.SIGCHLD)
	reap() // those that ended before anybody listened
	for {
		select {
		case <-end:
			return
		case <-child:
			reap()
		}
	}
}

// reap collects every child that has ended.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
