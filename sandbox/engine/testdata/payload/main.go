// Command payload is what the tests' containers run: the one file of their root.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	args := os.Args[2:]
	switch os.Args[1] {
	case "exit":
		os.Exit(number(args[0]))
	case "say": // each argument as it is
		for _, text := range args {
			fmt.Print(text)
		}
	case "complain": // to the standard error
		for _, text := range args {
			fmt.Fprint(os.Stderr, text)
		}
		os.Exit(3)
	case "fill": // one line of so many bytes, maybe with its end
		fmt.Print(strings.Repeat("x", number(args[0])), strings.Join(args[1:], ""))
	case "wait":
		fmt.Println("ready")
		forever()
	case "term": // ends with a code on SIGTERM
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		os.Exit(number(args[0]))
	case "count": // numbered lines of 100 bytes up to a number, as fast as it can
		w := bufio.NewWriter(os.Stdout)
		for i := range number(args[0]) {
			fmt.Fprintf(w, "%099d\n", i)
		}
		_ = w.Flush()
	case "chat": // a numbered line each millisecond up to a number, then maybe eats
		for i := range number(args[0]) {
			fmt.Println(i)
			time.Sleep(time.Millisecond)
		}
		if len(args) > 1 {
			eat()
		}
	case "cat": // input to output, then a word
		_, _ = io.Copy(os.Stdout, os.Stdin)
		fmt.Println("end")
	case "after": // exits with a code when its input has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(number(args[0]))
	case "eat": // memory, for ever
		eat()
	case "size": // the terminal's, each time it changes
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGWINCH)
		for {
			fmt.Println(size())
			<-c
		}
	case "parent": // leaves a child in a session of its own, and maybe stays
		child := exec.Command("/payload", "child", args[1])
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		check(child.Start())
		if args[0] == "stay" {
			forever()
		}
	case "child": // leaves a grandchild without a parent, and ends
		grandchild := exec.Command("/payload", "mark", args[0])
		grandchild.Stdout, grandchild.Stderr = os.Stdout, os.Stderr
		check(grandchild.Start())
	case "mark": // bears a mark in its command line
		fmt.Println("marked")
		forever()
	default:
		os.Exit(127)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(126)
	}
}

// eat takes memory until it is killed.
func eat() {
	var all [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 1
		}
		all = append(all, b)
	}
}

// forever blocks; an empty select would be taken for a deadlock.
func forever() { time.Sleep(1 << 62) }
