package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crib-runtime/crib/sandbox/image"
)

// pace is how fast a download must at least be.
type pace struct {
	idle time.Duration // in each such time something must come
	rate uint64        // bytes a second, on average over idle; 0 is any
}

// looks is how often in pace.idle it is looked at a download.
const looks = 10

// watch cancels a download that is slower than its pace, until ctx ends.
func (p pace) watch(ctx context.Context, m *meter, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(max(p.idle/looks, time.Millisecond))
	defer ticker.Stop()
	var h history
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if got, slow := h.slow(p, m.open.Load(), m.bytes.Load()); slow {
			cancel(fmt.Errorf("%w: %d bytes came in %v, at least %d are wanted", image.ErrRegistryUnavailable, got, p.idle, p.need()))
			return
		}
	}
}

// need is how many bytes must come in p.idle.
func (p pace) need() uint64 {
	return max(1, uint64(float64(p.rate)*p.idle.Seconds()))
}

// history is what was counted at the last looks, the oldest first.
type history []uint64

// slow takes in one more look, and says whether too little came since the oldest
// one. While nothing is open, as when all has come and is being unpacked, no time
// passes.
func (h *history) slow(p pace, open int64, bytes uint64) (got uint64, slow bool) {
	if open == 0 {
		*h = (*h)[:0]
		return 0, false
	}
	*h = append(*h, bytes)
	if len(*h) <= looks {
		return 0, false
	}
	got = bytes - (*h)[0]
	*h = (*h)[1:]
	return got, got < p.need()
}

// meter counts what comes from registries for one pull.
type meter struct {
	open  atomic.Int64 // requests whose answers are not read to the end
	bytes atomic.Uint64

	mu         sync.Mutex // guards transports
	transports []*http.Transport
}

// attach puts the meter into a client of containerd's. It is called twice for
// some.
func (m *meter) attach(c *http.Client) error {
	if _, ok := c.Transport.(metered); ok {
		return nil
	}
	if t, ok := c.Transport.(*http.Transport); ok {
		m.mu.Lock()
		m.transports = append(m.transports, t)
		m.mu.Unlock()
	}
	c.Transport = metered{c.Transport, m}
	return nil
}

// close ends the connections that are open still.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.transports {
		t.CloseIdleConnections()
	}
}

// metered is a transport that counts.
type metered struct {
	http.RoundTripper
	meter *meter
}

// RoundTrip implements http.RoundTripper.
func (t metered) RoundTrip(req *http.Request) (*http.Response, error) {
	t.meter.open.Add(1)
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		t.meter.open.Add(-1)
		return nil, err
	}
	resp.Body = &meteredBody{ReadCloser: resp.Body, meter: t.meter}
	return resp, nil
}

// meteredBody counts what is read of an answer.
type meteredBody struct {
	io.ReadCloser
	meter *meter
	once  sync.Once
}

// Read implements io.Reader.
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.meter.bytes.Add(uint64(n))
	return n, err
}

// Close implements io.Closer.
func (b *meteredBody) Close() error {
	b.once.Do(func() { b.meter.open.Add(-1) })
	return b.ReadCloser.Close()
}
