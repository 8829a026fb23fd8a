// Package nstest runs a package's tests in namespaces of their own, so that no
// link, address, rule, mount or sysctl of theirs reaches the machine, and checks
// after each test that nothing was left there.
//
// A test package that needs the kernel calls [Main] from its TestMain and
// [Lab] at the start of each such test. With -short, or without root, those
// tests are skipped and the others run as they are.
//
// # Decisions
//
// 1. The test binary runs itself again in new namespaces, instead of moving a
// thread of its own: so every goroutine of a test is inside, whatever it calls.
//
// 2. Lab compares everything before and after instead of asking each test what
// it made: so it finds what nobody thought of. What the kernel tears down in the
// background is waited for.
package nstest
