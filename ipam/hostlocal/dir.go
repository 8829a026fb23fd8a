package hostlocal

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/containerd/errdefs"
)

const (
	lockName   = "lock"
	lastPrefix = "last_reserved_ip."
	lineBreak  = "\r\n"
	lockWait   = 5 * time.Second
)

// Dir is a directory of reservations. It is safe for concurrent use, also by
// several processes. Each call fails with ErrUnavailable when another process
// keeps the lock for more than five seconds.
type Dir struct {
	path string
	wait time.Duration // for the lock
}

// Entry is one reservation.
type Entry struct {
	Addr      netip.Addr
	ID        string // of the container; empty when the file is empty or unreadable as one
	Interface string // empty in files of old versions of host-local
}

// Open returns the directory, which is made with mode 0755 if it is missing.
func Open(dir string) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make reservation directory: %w", err)
	}
	return &Dir{path: dir, wait: lockWait}, nil
}

// Claim reserves the address for the interface of the container. It is
// idempotent. ErrAlreadyExists: the address is another's, whom the error names.
func (d *Dir) Claim(addr netip.Addr, id, ifname string) error {
	if strings.TrimSpace(id) == "" || !addr.IsValid() {
		return fmt.Errorf("reserve address %v for %q: both are needed: %w", addr, id, errdefs.ErrInvalidArgument)
	}
	want := Entry{Addr: addr.Unmap(), ID: id, Interface: ifname}
	return d.locked(func() error {
		if err := d.claimLocked(want); err != nil {
			return fmt.Errorf("reserve address %v in %s: %w", want.Addr, d.path, err)
		}
		return nil
	})
}

func (d *Dir) claimLocked(want Entry) error {
	err := d.create(want)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	got, err := d.read(want.Addr)
	if err != nil {
		return err
	}
	switch {
	case got.ID == "":
		if err := os.Remove(d.file(want.Addr)); err != nil {
			return fmt.Errorf("take over empty file: %w", err)
		}
		return d.create(want)
	case got.ID == want.ID && (got.Interface == want.Interface || got.Interface == ""):
		return nil
	}
	return fmt.Errorf("it is reserved for container %q, interface %q: %w", got.ID, got.Interface, errdefs.ErrAlreadyExists)
}

// Replace makes the reservation that of the container, whoever has it: for an
// address that the container is known to use.
func (d *Dir) Replace(addr netip.Addr, id, ifname string) error {
	want := Entry{Addr: addr.Unmap(), ID: id, Interface: ifname}
	return d.locked(func() error {
		err := os.Remove(d.file(want.Addr))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = d.create(want)
		}
		if err != nil {
			return fmt.Errorf("reserve address %v in %s for who uses it: %w", want.Addr, d.path, err)
		}
		return nil
	})
}

// create makes the file of an entry, or no file.
func (d *Dir) create(e Entry) error {
	f, err := os.OpenFile(d.file(e.Addr), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(e.ID + lineBreak + e.Interface)
	err = errors.Join(err, f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (d *Dir) read(addr netip.Addr) (Entry, error) {
	data, err := os.ReadFile(d.file(addr))
	if err != nil {
		return Entry{}, err
	}
	id, ifname := parse(string(data))
	return Entry{Addr: addr, ID: id, Interface: ifname}, nil
}

// parse returns the content of a file, and an empty id when it can be none.
func parse(text string) (id, ifname string) {
	id, ifname, _ = strings.Cut(strings.TrimSpace(text), "\n")
	id, ifname = strings.TrimSpace(id), strings.TrimSpace(ifname)
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.ContainsFunc(id, odd) || strings.ContainsFunc(ifname, odd) {
		return "", ""
	}
	return id, ifname
}

func (d *Dir) file(addr netip.Addr) string {
	return filepath.Join(d.path, addr.String())
}

// Release removes the reservation of the address if it is the container's. A
// missing one, or another's, is left as it is and no error.
func (d *Dir) Release(addr netip.Addr, id string) error {
	addr = addr.Unmap()
	return d.locked(func() error {
		got, err := d.read(addr)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (got.ID == "" || got.ID != id) {
			return nil
		}
		if err == nil {
			err = os.Remove(d.file(addr))
		}
		if err != nil {
			return fmt.Errorf("free address %v in %s: %w", addr, d.path, err)
		}
		return nil
	})
}

// Entries returns all reservations, ours and others', in the order of their addresses.
func (d *Dir) Entries() ([]Entry, error) {
	var entries []Entry
	err := d.locked(func() (err error) {
		entries, err = d.entriesLocked()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list reservations in %s: %w", d.path, err)
	}
	return entries, nil
}

func (d *Dir) entriesLocked() ([]Entry, error) {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, f := range files {
		addr, err := netip.ParseAddr(f.Name())
		if err != nil || !f.Type().IsRegular() {
			continue
		}
		e, err := d.read(addr)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Addr.Compare(b.Addr) })
	return entries, nil
}

// SetLast records the address that was given last from the ith range, from
// where a host-local binary goes on.
func (d *Dir) SetLast(i int, addr netip.Addr) error {
	return d.locked(func() error {
		name := filepath.Join(d.path, lastPrefix+strconv.Itoa(i))
		if err := os.WriteFile(name, []byte(addr.Unmap().String()), 0o600); err != nil {
			return fmt.Errorf("record last address of range %d: %w", i, err)
		}
		return nil
	})
}

// Remove removes the directory with its empty reservations. A reservation that
// is held, or a file that is not of this format, is ErrFailedPrecondition, and
// then nothing is removed. A missing directory is fine.
func (d *Dir) Remove() error {
	if _, err := os.Stat(d.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return d.locked(func() error {
		if err := d.removableLocked(); err != nil {
			return fmt.Errorf("remove reservation directory %s: %w", d.path, err)
		}
		return os.RemoveAll(d.path)
	})
}

// removableLocked returns an error that names what stands against removal.
func (d *Dir) removableLocked() error {
	entries, err := d.entriesLocked()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.ID != "" {
			return fmt.Errorf("address %v is reserved for container %q: %w", e.Addr, e.ID, errdefs.ErrFailedPrecondition)
		}
	}
	files, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, f := range files {
		_, notAddr := netip.ParseAddr(f.Name())
		if notAddr != nil && f.Name() != lockName && !strings.HasPrefix(f.Name(), lastPrefix) {
			return fmt.Errorf("%s is not a file of ours: %w", f.Name(), errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}
