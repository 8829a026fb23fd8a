package nat

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Of linux/netfilter/nf_tables.h; each kind of message has the table's name as its
// first attribute.
const (
	attrTable   = 1 // NFTA_TABLE_NAME, NFTA_RULE_TABLE and so on
	attrGenPID  = 2 // NFTA_GEN_PROC_PID
	attrGenName = 3 // NFTA_GEN_PROC_NAME
)

// culprit is who changed the table since it was last right.
type culprit struct {
	mu  sync.Mutex // guards who
	who string
}

func (c *culprit) put(who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.who = who
}

func (c *culprit) get() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.who
}

// Watch calls changed after each transaction of somebody else that concerns the
// table, and when messages were lost, until ctx ends or an error. It may run
// beside everything else.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("connect to nf_tables: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() {
			_ = conn.Close()
		}
	}()
	if err := errors.Join(conn.SetReadBuffer(buffer), conn.JoinGroup(unix.NFNLGRP_NFTABLES)); err != nil {
		return fmt.Errorf("listen to nf_tables: %w", err)
	}
	for touched := false; ; {
		messages, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			changed()
			continue
		case err != nil:
			return fmt.Errorf("listen to nf_tables: %w", err)
		}
		for _, m := range messages {
			touched = t.heed(m, touched, changed)
		}
	}
}

// heed takes one message, and returns whether the transaction that it is part of
// concerns the table.
func (t *Table) heed(m netlink.Message, touched bool, changed func()) bool {
	if !generation(m) {
		return touched || t.touches(m)
	}
	if touched {
		t.last.put(author(m))
		changed()
	}
	return false
}

// generation reports whether the message ends a transaction.
func generation(m netlink.Message) bool {
	return m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN
}

// touches reports whether the message tells of a change of our table by another.
func (t *Table) touches(m netlink.Message) bool {
	if m.Header.PID == t.kernel.port.Load() || len(m.Data) < 4 {
		return false
	}
	if forwards(m) || bytes.Contains(m.Data, []byte(passComment)) {
		return true
	}
	d, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return false
	}
	for d.Next() {
		if d.Type() == attrTable {
			return d.String() == t.kernel.schema.table.Name
		}
	}
	return false
}

// forwards reports whether the message is about a base chain that forwarded packets
// pass, by whomever.
func forwards(m netlink.Message) bool {
	if kind := m.Header.Type & 0xff; kind != unix.NFT_MSG_NEWCHAIN && kind != unix.NFT_MSG_DELCHAIN {
		return false
	}
	d, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return false
	}
	for d.Next() {
		if d.Type() == unix.NFTA_CHAIN_HOOK {
			return true
		}
	}
	return false
}

// author names the process that made the transaction.
func author(m netlink.Message) string {
	if len(m.Data) < 4 {
		return ""
	}
	d, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return ""
	}
	d.ByteOrder = binary.BigEndian
	name, pid := "", uint32(0)
	for d.Next() {
		switch d.Type() {
		case attrGenPID:
			pid = d.Uint32()
		case attrGenName:
			name = d.String()
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%s, process %d", name, pid)
}
