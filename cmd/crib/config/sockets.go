package config

import (
	"path/filepath"
	"strings"
)

// ContainerdSocket is where clients of containerd look for it. The kubelet's
// cAdvisor looks nowhere else, and asks for the process of each sandbox.
const ContainerdSocket = "/run/containerd/containerd.sock"

// ServedAt tells whether the engine's API is served on a socket, which may be CRI's.
func (e Engine) ServedAt(socket string) bool { return sameSocket(e.Listen, socket) }

// sameSocket tells whether two paths are one. /var/run is /run everywhere, and many
// write it.
func sameSocket(a, b string) bool {
	return a != "" && b != "" && socketPath(a) == socketPath(b)
}

func socketPath(path string) string {
	path = filepath.Clean(path)
	if strings.HasPrefix(path, "/var/run/") {
		return strings.TrimPrefix(path, "/var")
	}
	return path
}

// clash is what is wrong with a key because of another one.
type clash struct{ key, text string }

// clashes returns what is impossible about the sockets together.
func clashes(c Config, set Origins) (found []clash) {
	_, asked := set["engine.listen"]
	switch {
	case c.Engine.Listen == "" || c.Engine.Address == "":
	case set != nil && !asked:
		found = append(found, clash{"listen", "is containerd's socket, where clients expect its API, too, which engine.address turns off; " +
			"want another path, or engine.listen = \"\" to serve CRI alone"})
	default:
		found = append(found, clash{"engine.listen", "serves the embedded engine, which engine.address turns off; set one of the two"})
	}
	if sameSocket(c.Engine.Address, c.Listen) {
		found = append(found, clash{"engine.address", "is the same as listen; want the socket of another process"})
	}
	if sameSocket(c.Listen, c.Admin.Listen) {
		found = append(found, clash{"admin.listen", "is the same as listen; want a socket of its own"})
	}
	if sameSocket(c.Engine.Listen, c.Admin.Listen) {
		found = append(found, clash{"engine.listen", "is the same as admin.listen; want another socket"})
	}
	return found
}
