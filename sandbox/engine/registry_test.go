package engine

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// testRegistry is a registry in memory on the loopback of the test's namespace.
type testRegistry struct {
	t    testing.TB
	host string

	mu      sync.Mutex // guards what follows
	blobs   map[digest.Digest][]byte
	types   map[digest.Digest]string // of manifests and indexes
	tags    map[string]digest.Digest // "repository:tag"
	asked   map[string]int           // by path; HEAD is not counted
	headers []string                 // Authorization, as it came

	allow string                                            // Authorization that is wanted; "" is none
	token string                                            // what the token endpoint gives for Basic allowTo
	gate  func(w http.ResponseWriter, r *http.Request) bool // answers in the registry's stead
}

// newRegistry starts one, which the test's end stops.
func newRegistry(t testing.TB) *testRegistry {
	t.Helper()
	r := &testRegistry{
		t: t, blobs: map[digest.Digest][]byte{}, types: map[digest.Digest]string{},
		tags: map[string]digest.Digest{}, asked: map[string]int{},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(r)
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	r.host = l.Addr().String()
	return r
}

// push puts an image in and returns its reference.
func (r *testRegistry) push(name string, i *testImage) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d, b := range i.blobs {
		r.blobs[d] = b
	}
	for d, kind := range i.types {
		r.types[d] = kind
	}
	r.tags[name] = i.target.Digest
	return r.host + "/" + name
}

// count is how often a path's end was asked for with GET.
func (r *testRegistry) count(suffix string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, times := range r.asked {
		if strings.HasSuffix(path, suffix) {
			n += times
		}
	}
	return n
}

// told are the credentials that came.
func (r *testRegistry) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.headers...)
}

// ServeHTTP implements http.Handler.
func (r *testRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	if req.Method == http.MethodGet {
		r.asked[req.URL.Path]++
	}
	if auth := req.Header.Get("Authorization"); auth != "" {
		r.headers = append(r.headers, auth)
	}
	allow, token, gate := r.allow, r.token, r.gate
	r.mu.Unlock()
	switch {
	case req.URL.Path == "/token":
		r.serveToken(w, req)
	case allow != "" && req.Header.Get("Authorization") != allow:
		challenge := `Basic realm="test"`
		if token != "" {
			challenge = fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, r.host)
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
	case gate != nil && gate(w, req):
	default:
		r.serveContent(w, req)
	}
}

// serveToken gives the token to user "me" with password "secret", or to the
// refresh token "identity".
func (r *testRegistry) serveToken(w http.ResponseWriter, req *http.Request) {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secret"))
	if req.Header.Get("Authorization") != basic && req.FormValue("password") != "secret" && req.FormValue("refresh_token") != "identity" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"access_token": r.token, "token": r.token})
}

// serveContent serves /v2/<name>/{manifests,blobs}/<reference>.
func (r *testRegistry) serveContent(w http.ResponseWriter, req *http.Request) {
	name, ref, ok := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/"), "/manifests/")
	if !ok {
		name, ref, _ = strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/"), "/blobs/")
	}
	r.mu.Lock()
	d, tagged := r.tags[name+":"+ref]
	if !tagged {
		d = digest.Digest(ref)
	}
	b, kind := r.blobs[d], r.types[d]
	r.mu.Unlock()
	if b == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if kind == "" {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", d.String())
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b))
}

// layerGate calls serve in the stead of the answer to a GET of i's first layer.
func layerGate(i *testImage, serve http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, i.layers[0].Digest.String()) {
			return false
		}
		serve(w, req)
		return true
	}
}

// withGate sets the gate for requests from now on.
func (r *testRegistry) withGate(gate func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = gate
}
