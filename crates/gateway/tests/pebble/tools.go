//go:build tools

// Package tools names what the tests install, so that go.mod fixes its version and those of all it needs.
package tools

import _ "github.com/letsencrypt/pebble/v2/cmd/pebble"
