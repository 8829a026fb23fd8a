package hostlocal

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
)

var ( //nolint:gochecknoglobals // two constants that Go cannot write as such
	v4 = netip.MustParseAddr("10.88.0.7")
	v6 = netip.MustParseAddr("fd00:0:0:1::7")
)

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "networks", "pods"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// store opens the same directory by host-local's own code.
func store(t *testing.T, d *Dir) *disk.Store {
	t.Helper()
	s, err := disk.New(filepath.Base(d.path), filepath.Dir(d.path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func write(t *testing.T, d *Dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.path, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantEntries(t *testing.T, d *Dir, want ...Entry) {
	t.Helper()
	got, err := d.Entries()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("entries: %v, %v, want %v", got, err, want)
	}
}

func TestOurReservationsAreHostLocals(t *testing.T) {
	d := open(t)
	s := store(t, d)
	for _, addr := range []netip.Addr{v4, v6} {
		if err := d.Claim(addr, "pod1", "eth0"); err != nil {
			t.Fatal(err)
		}
		if ok, err := s.Reserve("pod2", "eth0", net.IP(addr.AsSlice()), "0"); ok || err != nil {
			t.Errorf("host-local reserved %v a second time: %v %v", addr, ok, err)
		}
	}
	got := s.GetByID("pod1", "eth0")
	if len(got) != 2 || !got[0].Equal(net.IP(v4.AsSlice())) || !got[1].Equal(net.IP(v6.AsSlice())) {
		t.Errorf("host-local sees %v", got)
	}
	if err := s.ReleaseByID("pod1", "eth0"); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, d)
	if err := d.SetLast(1, v6); err != nil {
		t.Fatal(err)
	}
	if last, err := s.LastReservedIP("1"); err != nil || !last.Equal(net.IP(v6.AsSlice())) {
		t.Errorf("host-local goes on after %v, %v", last, err)
	}
}

func TestHostLocalsReservationsAreOurs(t *testing.T) {
	d := open(t)
	s := store(t, d)
	for _, addr := range []netip.Addr{v4, v6} {
		if ok, err := s.Reserve("pod1", "eth0", net.IP(addr.AsSlice()), "0"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := d.Claim(addr, "pod1", "eth0"); err != nil {
			t.Error("our own reservation:", err)
		}
		err := d.Claim(addr, "pod2", "eth0")
		if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), `"pod1"`) {
			t.Error(err)
		}
	}
	wantEntries(t, d, Entry{v4, "pod1", "eth0"}, Entry{v6, "pod1", "eth0"})
	for _, id := range []string{"pod2", "pod1", "pod1"} {
		if err := d.Release(v6, id); err != nil {
			t.Error(err)
		}
	}
	wantEntries(t, d, Entry{v4, "pod1", "eth0"})
	if len(s.GetByID("pod1", "eth0")) != 1 {
		t.Error("host-local sees another number")
	}
}

func TestEmptyFileIsTakenOver(t *testing.T) {
	d := open(t)
	for _, content := range []string{"", " \r\n", "\x00\x00\x00\x00"} {
		write(t, d, v4.String(), content)
		wantEntries(t, d, Entry{Addr: v4})
		if err := d.Claim(v4, "pod1", "eth0"); err != nil {
			t.Error(err)
		}
		wantEntries(t, d, Entry{v4, "pod1", "eth0"})
	}
}

func TestFileOfAnOldVersionHoldsTheIDAlone(t *testing.T) {
	d := open(t)
	write(t, d, v4.String(), "pod1")
	if err := d.Claim(v4, "pod1", "eth0"); err != nil {
		t.Error(err)
	}
	if err := d.Claim(v4, "pod2", "eth0"); !errdefs.IsAlreadyExists(err) {
		t.Error(err)
	}
	if err := d.Release(v4, "pod1"); err != nil {
		t.Error(err)
	}
	wantEntries(t, d)
}

func TestClaimOfAnotherInterfaceIsRefused(t *testing.T) {
	d := open(t)
	if err := d.Claim(v4, "pod1", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := d.Claim(v4, "pod1", "eth1"); !errdefs.IsAlreadyExists(err) {
		t.Error(err)
	}
}

func TestClaimWithoutIDIsRefused(t *testing.T) {
	if err := open(t).Claim(v4, " ", "eth0"); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}

func TestOneOfManyClaimsWins(t *testing.T) {
	d := open(t)
	var won atomic.Int32
	var wg sync.WaitGroup
	for _, id := range strings.Split("abcdefgh", "") {
		wg.Go(func() {
			switch err := d.Claim(v4, id, "eth0"); {
			case err == nil:
				won.Add(1)
			case !errdefs.IsAlreadyExists(err):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d claims of one address succeeded", won.Load())
	}
}

func TestLockHeldByAnotherIsGivenUp(t *testing.T) {
	d := open(t)
	s := store(t, d)
	if err := s.Lock(); err != nil {
		t.Fatal(err)
	}
	d.wait = time.Millisecond
	if err := d.Claim(v4, "pod1", "eth0"); !errdefs.IsUnavailable(err) {
		t.Error(err)
	}
	d.wait = lockWait
	done := make(chan error)
	go func() { done <- d.Claim(v4, "pod1", "eth0") }()
	if err := s.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error("the lock became free:", err)
	}
}

func TestLockIsFreeBetweenCalls(t *testing.T) {
	d := open(t)
	if err := d.Claim(v4, "pod1", "eth0"); err != nil {
		t.Fatal(err)
	}
	s := store(t, d)
	if err := s.Lock(); err != nil { // waits for ever if it is not
		t.Fatal(err)
	}
	if err := s.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyFilesOfTheFormatAreMade(t *testing.T) {
	d := open(t)
	for _, err := range []error{d.Claim(v6, "pod1", "eth0"), d.SetLast(0, v6)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(d.path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := []string{v6.String(), "last_reserved_ip.0", "lock"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

func TestRemoveSparesWhatIsHeldOrUnknown(t *testing.T) {
	d := open(t)
	if err := d.Claim(v4, "pod1", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "pod1") {
		t.Error(err)
	}
	if err := d.Release(v4, "pod1"); err != nil {
		t.Fatal(err)
	}
	write(t, d, "notes", "")
	if err := d.Remove(); !errdefs.IsFailedPrecondition(err) {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(d.path, "notes")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(d.path); !os.IsNotExist(err) {
		t.Error(err)
	}
	if err := d.Claim(v4, "pod1", "eth0"); err != nil {
		t.Error("after removal:", err)
	}
}

func BenchmarkClaimAndRelease(b *testing.B) {
	d, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := d.Claim(v4, "pod1", "eth0"); err != nil {
			b.Fatal(err)
		}
		if err := d.Release(v4, "pod1"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestReplaceTakesTheReservationFromWhoeverHasIt(t *testing.T) {
	d := open(t)
	for _, before := range []string{"", "pod2\r\neth0", "none"} {
		if before != "none" {
			write(t, d, v4.String(), before)
		}
		if err := d.Replace(v4, "pod1", "eth0"); err != nil {
			t.Error(err)
		}
		wantEntries(t, d, Entry{v4, "pod1", "eth0"})
		if err := d.Release(v4, "pod1"); err != nil {
			t.Error(err)
		}
	}
}
