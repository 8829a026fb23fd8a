package admin_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/ops"
)

// source is what a daemon might tell.
type source struct{}

func (source) Version() string { return "1.2.3" }

func (source) Pods() []admin.Pod {
	return []admin.Pod{
		{
			ID: "abc", Namespace: "default", Name: "web", UID: "u", State: "Ready", CreatedAt: time.Unix(1, 0).UTC(),
			IPs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Timeline: []admin.Stage{{Name: "total", Millis: 1.5}},
			Attachments: []network.Attachment{{Driver: "bridge", Network: "crib", Interface: "eth0"}},
		},
		{ID: "def", Namespace: "default", Name: "old", State: "NotReady", Owed: "detach network: timeout"},
	}
}

func (source) Containers() []admin.Container {
	return []admin.Container{{ID: "123", PodID: "abc", Name: "main", State: "Running", CreatedAt: time.Unix(2, 0).UTC(), PID: 7}}
}

func (source) Ops() admin.Ops {
	return admin.Ops{
		InFlight: []ops.Operation{{
			Verb: "StopPodSandbox", Subject: ops.Subject{Pod: "default/web", ID: "abc"}, Began: time.Unix(3, 0).UTC(), Age: 4 * time.Second,
			At: []ops.Stage{{Name: "detach network", Took: time.Second}}, Done: []ops.Stage{},
		}},
		Owed: []admin.Debt{{Object: "pod", Name: "default/old", ID: "def", Since: time.Unix(1, 0).UTC(), Attempts: 3, Error: "detach network: timeout"}},
	}
}

// Networks has a conflist with the name of the built-in network, as people write them.
func (source) Networks() []admin.Network {
	return []admin.Network{
		{Name: "crib", Driver: "bridge", Used: true, Status: network.Status{Ready: true}, Ranges: []admin.Range{{
			CIDR: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"), Used: 1, Free: 252,
		}}, Repaired: map[string]uint64{"link": 3}, Findings: []network.Finding{{Kind: "bridge", Object: "crib0", Text: "down"}}},
		{Name: "crib", Driver: "cni", Status: network.Status{Reason: "NoConflist", Message: "there is none"}},
	}
}

// serve serves the API on a unix socket until the test ends.
func serve(t *testing.T) (socket string, metrics *admin.Metrics) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	metrics = admin.NewMetrics(source{})
	server := &http.Server{Handler: admin.NewHandler(source{}, metrics), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return socket, metrics
}

func TestTheClientGetsWhatTheSourceTells(t *testing.T) {
	socket, _ := serve(t)
	c := admin.Client{Socket: socket}
	if got, err := c.Pods(t.Context()); err != nil || !reflect.DeepEqual(got, source{}.Pods()) {
		t.Errorf("pods: %+v, %v", got, err)
	}
	if got, err := c.Containers(t.Context()); err != nil || !reflect.DeepEqual(got, source{}.Containers()) {
		t.Errorf("containers: %+v, %v", got, err)
	}
	if got, err := c.Ops(t.Context()); err != nil || !reflect.DeepEqual(got, source{}.Ops()) {
		t.Errorf("ops: %+v, %v", got, err)
	}
	if got, err := c.Networks(t.Context()); err != nil || !reflect.DeepEqual(got, source{}.Networks()) {
		t.Errorf("networks: %+v, %v", got, err)
	}
	if got, err := c.Version(t.Context()); err != nil || got.Version != "1.2.3" || got.Go == "" {
		t.Errorf("version: %+v, %v", got, err)
	}
}

func TestWithoutADaemonTheErrorNamesTheSocketAndTheRemedy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	_, err := admin.Client{Socket: socket}.Pods(t.Context())
	if err == nil || !strings.Contains(err.Error(), socket) || !strings.Contains(err.Error(), "crib serve") {
		t.Errorf("got %v", err)
	}
}

// request does one request on the socket.
func request(t *testing.T, socket, method, path string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{Dial: func(string, string) (net.Conn, error) { return net.Dial("unix", socket) }}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://crib"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestTheAPIIsReadOnly(t *testing.T) {
	socket, _ := serve(t)
	for _, path := range []string{"/v1/pods", "/v1/networks", "/v1/ops", "/v1/containers", "/v1/version", "/metrics"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			if status, _ := request(t, socket, method, path); status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
	if status, _ := request(t, socket, http.MethodGet, "/v2/pods"); status != http.StatusNotFound {
		t.Errorf("an unknown version: %d", status)
	}
	if status, body := request(t, socket, http.MethodGet, "/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("pprof: %d %s", status, body)
	}
}

// TestMetricsParseAndCount also holds when a conflist has the built-in network's name.
func TestMetricsParseAndCount(t *testing.T) {
	socket, metrics := serve(t)
	metrics.Stage("RunPodSandbox", "total", 2*time.Millisecond)
	metrics.Stage("RunPodSandbox", "network", time.Millisecond)
	metrics.Stage("StopPodSandbox", "detach network", time.Millisecond)
	metrics.Stage("CreateContainer", "total", 2*time.Millisecond)
	metrics.Stage("owed teardown", "detach network", time.Second) // nobody's business here
	status, body := request(t, socket, http.MethodGet, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`crib_pods{state="Ready"} 1`,
		`crib_pods{state="NotReady"} 1`,
		`crib_owed{object="pod"} 1`,
		`crib_owed{object="container"} 0`,
		`crib_containers{state="Running"} 1`,
		`crib_operations 1`,
		`crib_oldest_operation_seconds 4`,
		`crib_network_ready{driver="bridge",network="crib"} 1`,
		`crib_network_ready{driver="cni",network="crib"} 0`,
		`crib_addresses{cidr="10.0.0.0/24",driver="bridge",network="crib",state="free"} 252`,
		`crib_pod_start_seconds_count{stage="total"} 1`,
		`crib_pod_start_seconds_count{stage="network"} 1`,
		`crib_pod_stop_seconds_count{stage="detach network"} 1`,
		`containerd_cri_sandbox_create_network_seconds_count 1`,
		`containerd_cri_sandbox_delete_network_seconds_count 1`,
		`containerd_cri_container_create_seconds_count{runtime="io.containerd.runc.v2"} 1`,
		`crib_repairs_total{kind="link",network="crib"} 3`,
		`crib_network_findings{kind="bridge",network="crib"} 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
}
