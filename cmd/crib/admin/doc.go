// Package admin is the operator's API: HTTP and JSON on a unix socket of mode
// 0600, versioned paths, read-only. The operator's commands are thin clients of
// it.
//
//	GET /v1/version    what runs
//	GET /v1/pods       pods, with networks, timeline and what their teardown owes
//	GET /v1/networks   networks, ranges, verdicts
//	GET /metrics       for Prometheus
//	GET /debug/pprof/  of net/http/pprof
//
// Fields are only added within a version of the path.
package admin
