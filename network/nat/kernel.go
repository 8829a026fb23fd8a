package nat

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// patience is how long the kernel may take for a transaction; other programs'
	// large ones come first.
	patience = 10 * time.Second
	// buffer is for a batch of all elements, and for an acknowledgement of each
	// message: the kernel's default overflows at some hundreds.
	buffer = 8 << 20
	// elementsAMessage keeps the list below the 64 KiB of an attribute. It is
	// even, so that the two ends of an interval stay together.
	elementsAMessage = 256
)

// kernel speaks to nf_tables. It is not safe for concurrent use.
type kernel struct {
	schema schema
	conn   *nftables.Conn
	socket *netlink.Conn  // of conn
	built  string         // what rules read after the last rebuild
	stale  bool           // the kernel may not hold what memory holds
	port   *atomic.Uint32 // of the socket: who made a change, as notifications tell it
}

// dial connects unless there is a connection.
func (k *kernel) dial() error {
	if k.conn != nil {
		return nil
	}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		k.socket = c
		if err := k.notePort(c); err != nil {
			return err
		}
		return errors.Join(c.SetReadBuffer(buffer), c.SetWriteBuffer(buffer))
	}))
	if err != nil {
		return fmt.Errorf("connect to nf_tables: %w", err)
	}
	k.conn = conn
	return nil
}

// notePort notes the port of the socket, which our changes bear.
func (k *kernel) notePort(c *netlink.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var nameErr error
	err = raw.Control(func(fd uintptr) {
		var name unix.Sockaddr
		if name, nameErr = unix.Getsockname(int(fd)); nameErr == nil {
			k.port.Store(name.(*unix.SockaddrNetlink).Pid)
		}
	})
	return errors.Join(err, nameErr)
}

// hangUp closes the connection. After an error answers may still be on the way,
// which must not be taken for those to the next request.
func (k *kernel) hangUp() error {
	if k.conn == nil {
		return nil
	}
	err := k.conn.CloseLasting()
	k.conn, k.socket = nil, nil
	return err
}

// with calls do on a connection, within the kernel's time.
func (k *kernel) with(do func(*nftables.Conn) error) error {
	err := k.dial()
	if err != nil {
		return err
	}
	if err = k.socket.SetDeadline(time.Now().Add(patience)); err == nil {
		err = do(k.conn)
	}
	if err != nil {
		return errors.Join(err, k.hangUp())
	}
	return nil
}

// transact sends what build puts together as one transaction.
func (k *kernel) transact(build func(*nftables.Conn) error) error {
	return k.with(func(c *nftables.Conn) error {
		if err := build(c); err != nil {
			return err
		}
		return c.Flush()
	})
}

// unknown reports whether the transaction may have been made in spite of the error.
func unknown(err error) bool {
	return errors.Is(err, unix.ENOBUFS) || errors.Is(err, os.ErrDeadlineExceeded)
}

// change takes elements out and puts others in.
func (k *kernel) change(del, add []element) error {
	if len(del)+len(add) == 0 {
		return nil
	}
	return k.transact(func(c *nftables.Conn) error {
		return errors.Join(k.each(del, c.SetDeleteElements), k.each(add, c.SetAddElements))
	})
}

// refill makes the elements all that there are in the named sets.
func (k *kernel) refill(sets []string, elements []element) error {
	return k.transact(func(c *nftables.Conn) error {
		for _, name := range sets {
			c.FlushSet(k.schema.set(name))
		}
		return k.each(elements, c.SetAddElements)
	})
}

// rebuild swaps the table for one with exactly these elements, and remembers
// how the kernel describes it.
func (k *kernel) rebuild(elements []element) error {
	err := k.transact(func(c *nftables.Conn) error {
		k.remove(c)
		return k.build(c, elements)
	})
	if err != nil {
		return err
	}
	return k.with(func(*nftables.Conn) (err error) {
		k.built, err = k.rules()
		return err
	})
}

// erase removes the table.
func (k *kernel) erase() error {
	return k.transact(func(c *nftables.Conn) error {
		k.remove(c)
		return nil
	})
}

// eraseBeside removes the table of the bridge's family that an earlier process made
// and this one is not to have. A kernel that knows no such family has none.
func (k *kernel) eraseBeside() {
	if k.schema.beside != nil {
		return
	}
	_ = k.transact(func(c *nftables.Conn) error {
		t := &nftables.Table{Name: k.schema.table.Name, Family: nftables.TableFamilyBridge}
		c.AddTable(t)
		c.DelTable(t)
		return nil
	})
}

// remove deletes the table whether it is there or not.
func (k *kernel) remove(c *nftables.Conn) {
	for _, t := range k.schema.tables() {
		c.AddTable(t)
		c.DelTable(t)
	}
}

// probe makes and deletes the table in one transaction.
func (k *kernel) probe() error {
	return k.transact(func(c *nftables.Conn) error {
		err := k.build(c, networkElements(nil, nil))
		for _, t := range k.schema.tables() {
			c.DelTable(t)
		}
		return err
	})
}

// build makes the table where there is none.
func (k *kernel) build(c *nftables.Conn, elements []element) error {
	for _, t := range k.schema.tables() {
		c.AddTable(t)
	}
	for _, set := range k.schema.sets {
		if err := c.AddSet(set, nil); err != nil {
			return err
		}
	}
	for _, chain := range k.schema.chains {
		c.AddChain(chain.Chain)
		for _, r := range chain.rules {
			var words []byte
			if r.comment != "" {
				words = userdata.AppendString(nil, userdata.TypeComment, r.comment)
			}
			c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain.Chain, Exprs: r.exprs, UserData: words})
		}
	}
	return k.each(elements, c.SetAddElements)
}

// each calls do for the elements of each set.
func (k *kernel) each(elements []element, do func(*nftables.Set, []nftables.SetElement) error) error {
	bySet := map[string][]nftables.SetElement{}
	for _, e := range elements {
		bySet[e.set] = append(bySet[e.set], nftables.SetElement{Key: []byte(e.key), Val: []byte(e.value), IntervalEnd: e.end})
	}
	for _, set := range k.schema.sets {
		for all := bySet[set.Name]; len(all) > 0; {
			n := min(len(all), elementsAMessage)
			if err := do(set, all[:n]); err != nil {
				return fmt.Errorf("encode elements of set %s: %w", set.Name, err)
			}
			all = all[n:]
		}
	}
	return nil
}
