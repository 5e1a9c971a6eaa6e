//go:build tools

// Package tools names what the tests install, so that go.mod fixes its version and those of all it needs.
package tools

import (
	_ "connectrpc.com/conformance/cmd/connectconformance"
	_ "connectrpc.com/conformance/cmd/grpcserver"
	_ "github.com/prometheus/statsd_exporter"
	_ "google.golang.org/grpc/examples/helloworld/greeter_server"
	_ "google.golang.org/grpc/examples/route_guide/server"
)
