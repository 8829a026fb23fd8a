package integration

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// spans is a collector that notes the spans of one trace.
type spans struct {
	collector.UnimplementedTraceServiceServer
	trace string

	mu    sync.Mutex        // guards names
	names map[string]string // of the spans, by their id: the name, and the parent's id
}

// Export implements the collector's service.
func (s *spans) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range req.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				if fmt.Sprintf("%x", span.TraceId) == s.trace {
					s.names[fmt.Sprintf("%x", span.SpanId)] = fmt.Sprintf("%s of %x", span.Name, span.ParentSpanId)
				}
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// child returns the id of the span of a name below a parent, "" if there is none yet.
func (s *spans) child(name, parent string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, of := range s.names {
		if strings.HasSuffix(of, " of "+parent) && strings.Contains(of, name) {
			return id
		}
	}
	return ""
}

// TestSpansContinueTheKubeletsTrace has a collector and a client that traces.
func TestSpansContinueTheKubeletsTrace(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	s := &spans{trace: trace, names: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c := start(t, defaults+fmt.Sprintf("[tracing]\nendpoint = %q\n", l.Addr()))
	c.pod(c.Pod("untraced"))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-"+parent+"-01")
	if _, err := c.Run(ctx, c.Pod("a")); err != nil {
		t.Fatal(err)
	}
	if !c.eventually(func() bool { return s.child("runtime.v1.RuntimeService/RunPodSandbox", parent) != "" }) {
		t.Fatalf("got %v", s.names)
	}
	call := s.child("runtime.v1.RuntimeService/RunPodSandbox", parent)
	operation := s.child("RunPodSandbox", call)
	for _, stage := range []string{"lock", "plan", "record", "files", "namespaces", "network"} {
		if s.child(stage, operation) == "" {
			t.Errorf("no span of %s below %q in %v", stage, operation, s.names)
		}
	}
	if len(s.names) != 8 {
		t.Errorf("more than one pod is traced: %v", s.names)
	}
}
