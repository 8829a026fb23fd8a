package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// answerTime bounds the wait for the kernel's answer to a batch, in seconds. It
// is long since the lock of the network configuration may be held by a teardown.
const answerTime = 20

// ackTLVs is NLM_F_ACK_TLVS: attributes follow the answer.
const ackTLVs = 0x200

// batch is a list of route netlink messages that travel in one system call. The
// kernel works off all of them in order, also after one that it refuses.
type batch struct {
	bytes []byte
	names []string // what each message does, for errors
}

// add appends a message. Its sequence number is its place in the batch.
func (b *batch) add(name string, kind, flags int, parts ...nl.NetlinkRequestData) {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.Seq = uint32(len(b.names))
	for _, p := range parts {
		req.AddData(p)
	}
	b.bytes = append(b.bytes, req.Serialize()...)
	b.names = append(b.names, name)
}

// run sends the batch in the network namespace of the calling thread and waits
// for all answers. The error is that of the first message refused; it wraps the
// errno.
func (b *batch) run() error {
	if len(b.names) == 0 {
		return nil
	}
	fd, err := openSocket()
	if err != nil {
		return fmt.Errorf("opening netlink socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending netlink messages: %w", err)
	}
	return b.answers(fd)
}

// openSocket opens a socket for one batch: with a time-out, answers without the
// request but with the kernel's own words.
func openSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTime}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
	)
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// answers reads one answer for each message.
func (b *batch) answers(fd int) error {
	refused := make([]error, len(b.names))
	buf := make([]byte, 16<<10)
	for left := len(b.names); left > 0; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: waiting for the kernel's answer: %w", b.names[len(b.names)-left], err)
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return fmt.Errorf("reading the kernel's answer: %w", err)
		}
		for _, m := range msgs {
			if i := int(m.Header.Seq); m.Header.Type == unix.NLMSG_ERROR && i < len(refused) {
				refused[i] = b.refusal(i, m)
				left--
			}
		}
	}
	for _, err := range refused {
		if err != nil {
			return err
		}
	}
	return nil
}

// refusal turns an answer into an error, or nil for an acknowledgement.
func (b *batch) refusal(i int, m syscall.NetlinkMessage) error {
	if len(m.Data) < 4 {
		return fmt.Errorf("%s: short answer: %w", b.names[i], unix.EBADMSG)
	}
	errno := syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
	if errno == 0 {
		return nil
	}
	if words := explanation(m); words != "" {
		return fmt.Errorf("%s: %w (%s)", b.names[i], errno, words)
	}
	return fmt.Errorf("%s: %w", b.names[i], errno)
}

// explanation returns the kernel's words, which follow the errno and the header
// of the request, or "".
func explanation(m syscall.NetlinkMessage) string {
	const skip = 4 + unix.SizeofNlMsghdr
	if m.Header.Flags&ackTLVs == 0 || len(m.Data) < skip {
		return ""
	}
	attrs, err := nl.ParseRouteAttr(m.Data[skip:])
	if err != nil {
		return ""
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.NLMSGERR_ATTR_MSG {
			return nl.BytesToString(a.Value)
		}
	}
	return ""
}
