package host

import (
	"context"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Verdict is what is to be thought of a finding.
type Verdict string

// The verdicts.
const (
	Good    Verdict = "ok"
	Warning Verdict = "warning" // pods work, but not always or not as expected
	Missing Verdict = "missing" // pods do not work without it
)

// Finding is one thing that was looked at.
type Finding struct {
	Part    string  `json:"part"` // of the machine: "kernel", "cgroups"
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`            // for people
	Remedy  string  `json:"remedy,omitempty"` // what mends it, a command where there is one
}

// Config says what the daemon would work with.
type Config struct {
	Root, State string
	Bridge      string
	CIDRs       []netip.Prefix // of pods; none: those that the kubelet gives
	OCIRuntime  string         // path or name; "": the best one installed
	Programs    []string       // paths of what the daemon starts besides
	// Try calls [Inside] in namespaces of its own; nil leaves that out.
	Try func(ctx context.Context) ([]Finding, error)
}

// Check looks at everything. Parts come in the order in which people mend them.
func Check(ctx context.Context, cfg Config) []Finding {
	var all []Finding
	if os.Geteuid() != 0 {
		all = append(all, Finding{Part: "check", Name: "root", Verdict: Warning,
			Found: "not root: what needs it was not tried", Remedy: "sudo crib check"})
	}
	all = append(all, kernelVersion(), modules(), bridgeFilter())
	all = append(all, tried(ctx, cfg)...)
	all = append(all, userNamespaces(), security())
	all = append(all, ociRuntime(ctx, cfg.OCIRuntime))
	all = append(all, programs(cfg.Programs)...)
	all = append(all, cgroups()...)
	all = append(all, sysctls()...)
	all = append(all, conntrack(), swap())
	all = append(all, firewalls(ctx)...)
	all = append(all, overlaps(cfg)...)
	return append(all, disks(cfg)...)
}

// tried is what a child in namespaces of its own found.
func tried(ctx context.Context, cfg Config) []Finding {
	if cfg.Try == nil || os.Geteuid() != 0 {
		return nil
	}
	findings, err := cfg.Try(ctx)
	if err != nil {
		findings = append(findings, Finding{Part: "kernel", Name: "namespaces", Verdict: Missing,
			Found: "nothing could be tried in namespaces: " + err.Error(), Remedy: "give crib CAP_SYS_ADMIN"})
	}
	return findings
}

// Worst returns the worst verdict.
func Worst(findings []Finding) Verdict {
	worst := Good
	for _, f := range findings {
		if f.Verdict == Missing || f.Verdict == Warning && worst == Good {
			worst = f.Verdict
		}
	}
	return worst
}

// good returns a finding of which nothing is to be said.
func good(part, name, found string) Finding {
	return Finding{Part: part, Name: name, Verdict: Good, Found: found}
}

// but changes the verdict where it is bad.
func (f Finding) but(bad bool, verdict Verdict, remedy string) Finding {
	if bad {
		f.Verdict, f.Remedy = verdict, remedy
	}
	return f
}

// text reads a file of the kernel's, "" if it is not there.
func text(path string) string {
	b, _ := os.ReadFile(path) // a missing one is what callers ask for
	return strings.TrimSpace(string(b))
}

// number reads a number of the kernel's.
func number(path string) (n int, ok bool) {
	n, err := strconv.Atoi(text(path))
	return n, err == nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
