package logpump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// serviceName names the service; another version of its messages gets another.
const serviceName = "io.crib.logpump.v1"

// Methods of the service.
const (
	methodReopen   = "Reopen"
	methodAttach   = "Attach"
	methodCounters = "Counters"
)

// request is the message of every method.
type request struct {
	ID     string `json:"id"`
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// Register makes a server answer for the pumps that find knows; find returns an
// error of class errdefs.ErrNotFound for others.
func Register(server *ttrpc.Server, find func(id string) (*Pump, error)) {
	method := func(use func(*Pump, request) (any, error)) ttrpc.Method {
		return func(_ context.Context, unmarshal func(any) error) (any, error) {
			answer, err := serve(unmarshal, find, use)
			return answer, errgrpc.ToGRPC(err)
		}
	}
	server.RegisterService(serviceName, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		methodReopen:   method(func(p *Pump, _ request) (any, error) { return nil, p.Reopen() }),
		methodAttach:   method(func(p *Pump, r request) (any, error) { return nil, p.Attach(r.Stdout, r.Stderr) }),
		methodCounters: method(func(p *Pump, _ request) (any, error) { return p.Counters(), nil }),
	}})
}

// serve answers one call.
func serve(unmarshal func(any) error, find func(string) (*Pump, error), use func(*Pump, request) (any, error)) (*wrapperspb.BytesValue, error) {
	var message wrapperspb.BytesValue
	if err := unmarshal(&message); err != nil {
		return nil, err
	}
	var r request
	if err := json.Unmarshal(message.Value, &r); err != nil {
		return nil, fmt.Errorf("reading the request: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	pump, err := find(r.ID)
	if err != nil {
		return nil, err
	}
	answer, err := use(pump, r)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(answer)
	return wrapperspb.Bytes(b), err
}

// Client asks a shim about its pumps. It is safe for concurrent use.
type Client struct{ ttrpc *ttrpc.Client }

// Dial connects to a shim's address, as "unix:///run/…"; errdefs.ErrUnavailable
// if nobody listens there.
func Dial(address string) (*Client, error) {
	conn, err := net.Dial("unix", strings.TrimPrefix(address, "unix://"))
	if err != nil {
		return nil, fmt.Errorf("connecting to the shim (has it ended?): %w: %w", errdefs.ErrUnavailable, err)
	}
	return &Client{ttrpc.NewClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.ttrpc.Close() }

// Reopen is [Pump.Reopen] of container id.
func (c *Client) Reopen(ctx context.Context, id string) error {
	return c.call(ctx, methodReopen, request{ID: id}, nil)
}

// Attach is [Pump.Attach] of container id.
func (c *Client) Attach(ctx context.Context, id, stdout, stderr string) error {
	return c.call(ctx, methodAttach, request{ID: id, Stdout: stdout, Stderr: stderr}, nil)
}

// Counters is [Pump.Counters] of container id.
func (c *Client) Counters(ctx context.Context, id string) (counters Counters, err error) {
	err = c.call(ctx, methodCounters, request{ID: id}, &counters)
	return counters, err
}

func (c *Client) call(ctx context.Context, method string, r request, answer any) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	var got wrapperspb.BytesValue
	err = c.ttrpc.Call(ctx, serviceName, method, wrapperspb.Bytes(b), &got)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // the translation below would lose it
	}
	if errors.Is(err, ttrpc.ErrClosed) {
		return fmt.Errorf("asking the shim: it has ended: %w", errdefs.ErrUnavailable)
	}
	if err != nil || answer == nil {
		return errgrpc.ToNative(err)
	}
	return json.Unmarshal(got.Value, answer)
}
