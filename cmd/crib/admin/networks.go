package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/look"
)

// NetworkSource is a [Source] that can look at networks closely; the API has none of
// it without. Unlike a Source it asks the kernel. Errors are of errdefs.ErrNotFound for
// an unknown pod, which is named by its id, the beginning of it, or namespace/name.
type NetworkSource interface {
	PodNetwork(ctx context.Context, pod string) (PodNetwork, error)
	// Findings are what is not as it should be.
	Findings(ctx context.Context) ([]network.Finding, error)
	// Repair mends what can be mended and returns what is left.
	Repair(ctx context.Context) ([]network.Finding, error)
	// Trace tells which way a packet of a pod goes; port 0 is for any.
	Trace(ctx context.Context, pod string, to netip.AddrPort) ([]look.Step, error)
}

// PodNetwork is how a pod is connected, by its record and by the kernel.
type PodNetwork struct {
	Pod
	Netns string                `json:"netns"`
	Ports []network.PortMapping `json:"ports"`
	Links []PodLink             `json:"links"`
}

// PodLink is one link of a pod. Host is nil where the network does not tell its name.
type PodLink struct {
	network.Attachment
	Host   *look.Link   `json:"host,omitempty"`
	Inside *look.Inside `json:"inside,omitempty"`
	Errors []string     `json:"errors,omitempty"` // why one of the two is missing
}

// handleNetworks adds the calls that look closely.
func handleNetworks(mux *http.ServeMux, source NetworkSource) {
	mux.HandleFunc("GET /v1/network/pod", func(w http.ResponseWriter, r *http.Request) {
		reply(w, func() (PodNetwork, error) { return source.PodNetwork(r.Context(), r.URL.Query().Get("pod")) })
	})
	mux.HandleFunc("GET /v1/network/findings", func(w http.ResponseWriter, r *http.Request) {
		reply(w, func() ([]network.Finding, error) { return source.Findings(r.Context()) })
	})
	mux.HandleFunc("POST /v1/network/repair", func(w http.ResponseWriter, r *http.Request) {
		reply(w, func() ([]network.Finding, error) { return source.Repair(r.Context()) })
	})
	mux.HandleFunc("GET /v1/network/trace", func(w http.ResponseWriter, r *http.Request) {
		to, err := netip.ParseAddrPort(r.URL.Query().Get("to"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, func() ([]look.Step, error) { return source.Trace(r.Context(), r.URL.Query().Get("pod"), to) })
	})
}

// reply answers with a value, or refuses.
func reply[T any](w http.ResponseWriter, ask func() (T, error)) {
	value, err := ask()
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, value)
}

// PodNetwork returns how a pod is connected; see [NetworkSource].
func (c Client) PodNetwork(ctx context.Context, pod string) (n PodNetwork, err error) {
	return n, c.get(ctx, "/v1/network/pod?"+url.Values{"pod": {pod}}.Encode(), &n)
}

// Findings returns what is not as it should be.
func (c Client) Findings(ctx context.Context) (findings []network.Finding, err error) {
	return findings, c.get(ctx, "/v1/network/findings", &findings)
}

// Repair mends what can be mended and returns what is left.
func (c Client) Repair(ctx context.Context) (left []network.Finding, err error) {
	return left, c.do(ctx, call{http.MethodPost, "/v1/network/repair", nil}, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&left)
	})
}

// Trace returns which way a packet of a pod goes.
func (c Client) Trace(ctx context.Context, pod string, to netip.AddrPort) (steps []look.Step, err error) {
	return steps, c.get(ctx, "/v1/network/trace?"+url.Values{"pod": {pod}, "to": {to.String()}}.Encode(), &steps)
}
