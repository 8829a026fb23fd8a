package engine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crib-runtime/crib/sandbox/image"
)

// TestCertificatesOfHostsTOMLAreUsed has a registry that only shows itself to
// clients with a certificate, and that nobody knows but by hosts.toml.
func TestCertificatesOfHostsTOMLAreUsed(t *testing.T) {
	l := newLab(t)
	certs := t.TempDir()
	l.cfg.CertsDirs = []string{certs}
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	r.push("a:1", i)
	pair, file := keyPair(t)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	secure := httptest.NewUnstartedServer(r)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	host := secure.Listener.Addr().String()

	if _, err := e.Pull(t.Context(), host+"/a:1", image.Auth{}); err == nil {
		t.Fatal("the registry was trusted without a reason")
	}
	dir := filepath.Join(certs, host)
	l.must(os.MkdirAll(dir, 0o755))
	text := fmt.Sprintf("server = \"https://%[1]s\"\n[host.\"https://%[1]s\"]\nca = %[2]q\nclient = [[%[2]q, %[2]q]]\n", host, file)
	l.must(os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644))
	img, err := e.Pull(t.Context(), host+"/a:1", image.Auth{})
	if err != nil || img.ID != i.id() {
		t.Errorf("Pull() = %+v, %v", img, err)
	}
}

// keyPair makes a certificate for the loopback that has signed itself, and a file of it
// and its key.
func keyPair(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pair.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return pair, file
}

// testProxy is where the proxy of the test's own namespace listens.
const testProxy = "127.0.0.1:3128"

// TestPullsGoThroughTheProxyOfTheEnvironment runs itself again: a process reads these
// variables once. The name of the registry means nothing without the proxy.
func TestPullsGoThroughTheProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv("HTTP_PROXY") != "http://"+testProxy {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "HTTP_PROXY=http://"+testProxy, "NO_PROXY=", "CRIB_TEST_NAMESPACES=") // its own
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	l := newLab(t)
	certs := t.TempDir()
	l.cfg.CertsDirs = []string{certs}
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	r.push("a:1", i)
	var asked atomic.Int64
	toRegistry := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.host})
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		toRegistry.ServeHTTP(w, req)
	}))
	listener, err := net.Listen("tcp", testProxy)
	l.must(err)
	proxy.Listener = listener
	proxy.Start()
	t.Cleanup(proxy.Close)
	dir := filepath.Join(certs, "registry.invalid")
	l.must(os.MkdirAll(dir, 0o755))
	l.must(os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte("server = \"http://registry.invalid\"\n"), 0o644))
	img, err := e.Pull(t.Context(), "registry.invalid/a:1", image.Auth{})
	if err != nil || img.ID != i.id() || asked.Load() == 0 {
		t.Errorf("Pull() = %+v, %v; the proxy was asked %d times", img, err, asked.Load())
	}
}
