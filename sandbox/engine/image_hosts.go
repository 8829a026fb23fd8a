package engine

import (
	"context"
	"net/http"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox/image"
)

// hosts says where a registry's images come from: mirrors and certificates of
// hosts.toml, a proxy of the environment, credentials of the one who asked.
func (s *imageStore) hosts(ctx context.Context, auth image.Auth, m *meter) docker.RegistryHosts {
	hosts := config.ConfigureHosts(ctx, config.HostOptions{
		HostDir:      hostDir(s.cfg.certs),
		UpdateClient: m.attach,
		Credentials:  func(host string) (string, string, error) { return credentials(auth, host) },
	})
	if auth.RegistryToken == "" {
		return hosts
	}
	return func(name string) ([]docker.RegistryHost, error) {
		found, err := hosts(name)
		for i, host := range found {
			if told(auth, host.Host) {
				found[i].Authorizer = bearer{auth.RegistryToken, host.Host}
			}
		}
		return found, err
	}
}

// hostDir finds the directory of a registry in the first root that has one.
func hostDir(roots []string) func(string) (string, error) {
	return func(host string) (string, error) {
		for _, root := range roots {
			dir, err := config.HostDirFromRoot(root)(host)
			if !errdefs.IsNotFound(err) {
				return dir, err
			}
		}
		return "", errdefs.ErrNotFound
	}
}

// credentials are what a host is told: name and password, or no name and an
// identity token.
func credentials(auth image.Auth, host string) (user, secret string, err error) {
	switch {
	case !told(auth, host):
		return "", "", nil
	case auth.Username == "" && auth.IdentityToken != "":
		return "", auth.IdentityToken, nil
	}
	return auth.Username, auth.Password, nil
}

// told says whether a host is the server that credentials are for. A mirror is
// not, nor is where a registry keeps its blobs.
func told(auth image.Auth, host string) bool {
	return auth.Server == "" || serverHost(auth.Server) == serverHost(host)
}

// serverHost is the host of a server as clients write it: maybe with scheme and
// path; Docker's registry has several names.
func serverHost(server string) string {
	if _, rest, ok := strings.Cut(server, "://"); ok {
		server = rest
	}
	host, _, _ := strings.Cut(server, "/")
	switch host {
	case "docker.io", "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// bearer tells one host a token that somebody else has got.
type bearer struct{ token, host string }

// Authorize implements docker.Authorizer.
func (b bearer) Authorize(_ context.Context, req *http.Request) error {
	if req.URL.Host == b.host {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	return nil
}

// AddResponses implements docker.Authorizer. There is nothing to try but the token.
func (bearer) AddResponses(context.Context, []*http.Response) error {
	return docker.ErrInvalidAuthorization
}
