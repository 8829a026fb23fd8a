package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Client asks a daemon by its socket.
type Client struct {
	Socket string
}

// Pods returns all pods.
func (c Client) Pods(ctx context.Context) (pods []Pod, err error) {
	return pods, c.get(ctx, "/v1/pods", &pods)
}

// Ops returns what is in flight and what is owed.
func (c Client) Ops(ctx context.Context) (ops Ops, err error) {
	return ops, c.get(ctx, "/v1/ops", &ops)
}

// Containers returns all containers.
func (c Client) Containers(ctx context.Context) (containers []Container, err error) {
	return containers, c.get(ctx, "/v1/containers", &containers)
}

// Networks returns all networks.
func (c Client) Networks(ctx context.Context) (networks []Network, err error) {
	return networks, c.get(ctx, "/v1/networks", &networks)
}

// Version returns what runs.
func (c Client) Version(ctx context.Context) (version Version, err error) {
	return version, c.get(ctx, "/v1/version", &version)
}

func (c Client) get(ctx context.Context, path string, value any) error {
	return c.do(ctx, call{http.MethodGet, path, nil}, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(value)
	})
}

// call is one call of the API.
type call struct {
	method, path string
	body         io.Reader
}

// do makes a call and lets use read the answer, unless it is a refusal.
func (c Client) do(ctx context.Context, call call, use func(body io.Reader) error) error {
	var dialer net.Dialer
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", c.Socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, call.method, "http://crib"+call.path, call.body)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("ask the daemon at %s (does `crib serve` run?): %w", c.Socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return fmt.Errorf("the daemon at %s answers %s: %s", c.Socket, resp.Status, bytes.TrimSpace(text))
	}
	return use(resp.Body)
}
