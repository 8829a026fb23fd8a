package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gate starts both ends and returns a client that has no other way out.
func gate(t *testing.T, p *proxy) *http.Client {
	t.Helper()
	outside, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(p)
	server.Listener = outside
	server.Start()
	t.Cleanup(server.Close)

	inside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() { _ = accept(inside, outside.Addr().String()) })
	t.Cleanup(accepting.Wait)
	t.Cleanup(func() { _ = inside.Close() })
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: inside.Addr().String()})}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestPlainAndTunnelledRequestsPassAndTheirHostsAreTold(t *testing.T) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.URL.Path) })
	plain, secret := httptest.NewServer(hello), httptest.NewTLSServer(hello)
	defer plain.Close()
	defer secret.Close()

	p := newProxy()
	client := gate(t, p)
	client.Transport.(*http.Transport).TLSClientConfig = secret.Client().Transport.(*http.Transport).TLSClientConfig
	for _, server := range []*httptest.Server{plain, secret} {
		answer, err := client.Get(server.URL + "/you")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(text) != "hello /you" {
			t.Errorf("got %q from %s", text, server.URL)
		}
		if host := strings.TrimPrefix(strings.TrimPrefix(server.URL, "https://"), "http://"); !p.seen[host] {
			t.Errorf("host %s is not told: %v", host, p.seen)
		}
	}
}

func TestAHostThatRefusesIsABadGateway(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	client := gate(t, newProxy())
	answer, err := client.Get(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusBadGateway {
		t.Errorf("got %s, want 502", answer.Status)
	}
	if _, err := client.Get(strings.Replace(gone.URL, "http", "https", 1)); err == nil {
		t.Error("a tunnel to nobody was made")
	}
}
