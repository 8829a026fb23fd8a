package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/ops"
)

// node is a daemon with one of each kind of pod and of network.
type node struct{}

func (node) Version() string { return "1.2.3" }

func (node) Pods() []admin.Pod {
	return []admin.Pod{
		{
			ID: strings.Repeat("a", 64), Namespace: "default", Name: "web", State: "Ready", CreatedAt: time.Now(),
			IPs:      []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")},
			Timeline: []admin.Stage{{Name: "plan", Millis: 0.1}, {Name: "total", Millis: 2.34}},
		},
		{ID: "short", Namespace: "crib", Name: "unreadable", State: "NotReady", Owed: "first\nsecond"},
	}
}

func (node) Containers() []admin.Container { return []admin.Container{} }

func (node) Ops() admin.Ops {
	return admin.Ops{
		InFlight: []ops.Operation{
			{Verb: "StopPodSandbox", Subject: ops.Subject{Pod: "default/web", ID: strings.Repeat("a", 64)}, Age: 31 * time.Second,
				At: []ops.Stage{{Name: "detach network", Took: 30 * time.Second}}},
			{Verb: "RunPodSandbox", Subject: ops.Subject{Pod: "default/web"}, Age: 12 * time.Second, WaitsFor: "StopPodSandbox of default/web"},
		},
		Owed: []admin.Debt{{Object: "pod", Name: "default/web", ID: strings.Repeat("a", 64), Since: time.Now(), Attempts: 7, Error: "unpin\nbusy"}},
	}
}

func (node) Networks() []admin.Network {
	return []admin.Network{
		{Name: "crib", Driver: "bridge", Link: "crib0", Table: "inet crib", Used: true, Status: network.Status{Ready: true, Message: "nearly\nfull"}, Ranges: []admin.Range{
			{CIDR: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"), Used: 1, Free: 252},
		}, Repairs: []network.Repair{{
			Finding: network.Finding{Kind: "link", Object: "crib123", Text: "is down"}, At: time.Now(), Done: "set it up",
		}}},
		{Name: "macvlan", Driver: "cni", Status: network.Status{Ready: true}},
	}
}

// serveNode serves the admin API and returns the flags of commands that find it.
func serveNode(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: admin.NewHandler(node{}, admin.NewMetrics(node{})), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return []string{"--config", emptyConfig(t), "--state", dir}
}

func emptyConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a command and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTablesHaveOneRowForEach(t *testing.T) {
	flags := serveNode(t)
	for command, want := range map[string][]string{
		"pods": {
			"POD              STATE     IPS               START  AGE",
			"default/web      Ready     10.0.0.2,fd00::2  2.3ms  ",
			"crib/unreadable  NotReady                    -      ",
		},
		"net": {
			"NETWORK  DRIVER  LINK   TABLE      NEW PODS  READY  CIDR         GATEWAY   USED  FREE  MESSAGE",
			"crib     bridge  crib0  inet crib  true      true   10.0.0.0/24  10.0.0.1  1     252   nearly; full",
			"macvlan  cni     -      -          false     true   -            -         -     -     ",
			"",
			"REPAIRED  KIND  OBJECT   WHAT WAS WRONG  DONE",
			"0s ago    link  crib123  is down         set it up",
		},
		"ops": {
			"OPERATION       OF           ID            AGE  STAGE",
			"StopPodSandbox  default/web  aaaaaaaaaaaa  31s  detach network (30s)",
			"RunPodSandbox   default/web                12s  waits for StopPodSandbox of default/web",
			"",
			"OWED  OF           ID            SINCE  ATTEMPTS  LAST ERROR",
			"pod   default/web  aaaaaaaaaaaa  0s     7         unpin; busy",
		},
	} {
		out, err := run(t, append([]string{command}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if len(rows) != len(want) {
			t.Fatalf("%s: %d rows, want %d:\n%s", command, len(rows), len(want), out)
		}
		for i, row := range rows {
			if !strings.HasPrefix(row, want[i]) {
				t.Errorf("%s: row %q, want %q", command, row, want[i])
			}
		}
		if command == "pods" && (!strings.Contains(rows[1], strings.Repeat("a", 12)+" ") || !strings.HasSuffix(rows[2], "short         first; second")) {
			t.Errorf("ids and debts:\n%s", out)
		}
	}
}

func TestJSONIsWhatTheDaemonTells(t *testing.T) {
	out, err := run(t, append([]string{"pods", "-o", "json"}, serveNode(t)...)...)
	if err != nil {
		t.Fatal(err)
	}
	var pods []admin.Pod
	if err := json.Unmarshal([]byte(out), &pods); err != nil || len(pods) != 2 || pods[0].IPs[1].String() != "fd00::2" {
		t.Errorf("got %+v, %v", pods, err)
	}
}

func TestWrongUseIsAnErrorThatSaysWhatIsRight(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.toml")
	for _, test := range []struct{ args, want string }{
		{"pods -o xml --config " + emptyConfig(t), "want table, json or yaml"},
		{"pods --state " + t.TempDir() + " --config " + emptyConfig(t), "crib serve"},
		{"serve --config " + missing, missing},
		{"config check --config " + missing, missing},
		{"config check --log-level loud --config " + emptyConfig(t), "debug, info, warn, error"},
		{"pods extra", `"extra"`},
		{"check -o xml", "want table, json or yaml"},
		{"serv", "serve"},
	} {
		if out, err := run(t, strings.Fields(test.args)...); err == nil || !strings.Contains(err.Error()+out, test.want) {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
}

func TestConfigCommands(t *testing.T) {
	path := emptyConfig(t)
	if out, err := run(t, "config", "check", "--config", path); err != nil || !strings.Contains(out, "good") {
		t.Errorf("check: %q, %v", out, err)
	}
	if out, err := run(t, "config", "dump", "--config", path, "--root", "/srv/crib"); err != nil || !strings.Contains(out, `root = "/srv/crib" # --root`) {
		t.Errorf("dump: %q, %v", out, err)
	}
	if out, err := run(t, "config", "default"); err != nil || !strings.Contains(out, "version = 1") {
		t.Errorf("default: %q, %v", out, err)
	}
}
