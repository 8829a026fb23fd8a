package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"

	"github.com/crib-runtime/crib/network/ops"
)

// Tracing makes spans and sends them. It is safe for concurrent use.
type Tracing struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
}

// flushTime is how long the end of a daemon waits for the collector.
const flushTime = 2 * time.Second

// Open returns what sends to the collector at host:port. Of the calls that nobody
// traces yet it traces perMillion in a million. The collector need not be there.
func Open(ctx context.Context, endpoint string, perMillion int, version string) (*Tracing, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("trace to %s: %w", endpoint, err)
	}
	provider := trace.NewTracerProvider(
		trace.WithBatcher(exporter, trace.WithBatchTimeout(time.Second)),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(float64(perMillion)/1e6))),
		trace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "crib"), attribute.String("service.version", version))),
	)
	return &Tracing{provider, provider.Tracer("github.com/crib-runtime/crib")}, nil
}

// Handler makes the spans of a gRPC server's calls.
func (t *Tracing) Handler() stats.Handler {
	return otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}))
}

// Span makes the spans of operations and stages; it is for ops.Table.
func (t *Tracing) Span(ctx context.Context, name string, s ops.Subject) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, name)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("pod", s.Pod), attribute.String("container", s.Container), attribute.String("id", s.ID))
	}
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Close sends what is left, for a short time.
func (t *Tracing) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}
