package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// size is that of the terminal at the standard input.
func size() string {
	var s struct{ rows, columns, x, y uint16 }
	_, _, err := syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&s)))
	if err != 0 {
		return err.Error()
	}
	return fmt.Sprintf("%dx%d", s.columns, s.rows)
}
