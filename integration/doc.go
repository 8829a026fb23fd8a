// Package integration holds what no single package of crib can promise: that
// the whole, built and started as an operator would, does what CRI asks for and
// leaves a machine as it was, and that the source keeps its own house rules.
//
// It has no code for other packages: tests, the programs that they and the
// Makefile run (folders below), and files for people to try crib with.
//
//	layers_test.go   who may import whom, each law with its why
//	budget_test.go   how long, wide and deep code may be; docs on every exported name
//	habits_test.go   no init, no sleeping test, no error that only complains
//	source_test.go   reads the source for these
//	pods_test.go     pods, host ports, ranges, the contract, crictl
//	crash_test.go    the daemon killed, ended and started again
//	node_test.go     conflists, reset, sockets, the operator's commands
//	lab              runs a built crib in namespaces of its own, for all of these
//	demo             the README's first command
//	bench            times beside containerd
//	critest          the CRI conformance suite, and what does not pass yet
//	install_test.go  where make install puts files, versions of the package
//	deb.sh           the package in a virtual machine: install, upgrade, remove, purge
//	node             real kubelets on crib, or on containerd, in virtual machines (make node)
//	deps.sh          installs the Debian packages that the demo or the tests need
//	minbase.sh       the README's commands on a fresh Debian, and what they left behind
//	uplink           the way out that minbase.sh leaves open, and its log
//	tools            a module of its own for programs that the tests run (crictl, critest, crane)
//	testdata         a pod to run by hand
//
// # Invariants
//
//   - Nothing outside imports this package.
//   - A test here speaks CRI to the built binary; it does not reach into packages.
//   - The rules' tests need no root, no network and no kernel feature: `make unit`
//     and `make verify` run them.
//   - Each rule has a test that a breach of it is found: a rule that finds nothing
//     is worth nothing.
//
// # Crash
//
// Tests run the daemon on sockets and directories of their own, in namespaces of
// their own. When a test is killed, its namespaces go with it; its temporary
// directory and its cgroups may stay.
//
// # Decisions
//
// 1. House rules are Go tests, not only lint rules. Context: a rule that needs a
// program nobody has installed does not hold. Choice: go/parser in a test.
// Rejected: golangci-lint alone; it stays as `make lint` for what needs types.
// Consequence: a rule costs twenty lines, and says why when it is broken.
//
// 2. Tools have a module of their own. Context: crictl needs 60 modules. Choice:
// tools/go.mod. Rejected: tool directives in crib's go.mod, which would choose
// versions for the daemon. Consequence: `go ./...` does not see it; make tools does.
package integration
