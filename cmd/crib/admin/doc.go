// Package admin is the operator's API: HTTP and JSON on a unix socket of mode
// 0600, versioned paths, read-only but for images and repair. The operator's commands are
// thin clients of it.
//
//	GET /v1/version    what runs
//	GET /v1/pods       pods, with networks, timeline and what their teardown owes
//	GET /v1/containers containers and their states
//	GET /v1/ops        what is in flight, at which stage, and what teardowns owe
//	GET /v1/networks   networks, ranges, verdicts
//	GET /v1/events?follow=true         what happens, a line each (package events)
//	GET /v1/network/pod?pod=           how a pod is connected, by the kernel
//	GET /v1/network/findings           what is not as it should be
//	POST /v1/network/repair            mends it, and tells what is left
//	GET /v1/network/trace?pod=&to=     which way a packet goes
//	GET /v1/images     images of the node
//	DELETE /v1/images?ref=             removes images with all their references
//	POST /v1/images/import             takes the images of an archive, an OCI layout or a docker archive
//	GET /v1/images/export?ref=&ref=    an archive of images, which both can read
//	GET /metrics       for Prometheus
//	GET /debug/pprof/  of net/http/pprof
//
// Fields are only added within a version of the path.
package admin
