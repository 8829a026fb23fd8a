// Package tracing sends spans to an OpenTelemetry collector: one for each call of
// CRI, which continues the kubelet's trace, below it one for each operation and, below
// that, one for each of its stages.
//
// # Promises
//
//   - Off without an endpoint: then nothing is made and nothing is sent.
//   - A call that the kubelet traces is traced; of the others a share is.
//   - No call waits for the collector. Spans that it does not take are dropped.
//
// # Types
//
// [Tracing] is all of it.
//
// # Crashes
//
// Spans that were not sent are lost.
//
// # Decisions
//
//  1. OTLP over gRPC without TLS, as the kubelet's tracing.endpoint. Context: both send
//     to an agent of the node. Rejected: a second protocol and its keys.
//  2. The provider is passed, not set for the process: the engine's own spans would
//     follow, of which nobody asked.
package tracing
