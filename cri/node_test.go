package cri

import (
	"context"
	"net/netip"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
)

// goodNode is a machine of which nothing is to be said.
type goodNode struct{}

func (goodNode) NetworkStatus() network.Status                     { return network.Status{Ready: true} }
func (goodNode) SetPodCIDRs(context.Context, []netip.Prefix) error { return nil }
func (goodNode) MountFeatures() (bool, bool)                       { return false, false }
func (goodNode) SystemdCgroup() bool                               { return false }
func (goodNode) Info() map[string]string                           { return nil }

// TestAStuckKernelIsNamedAndEvictsNobody: the condition stays true.
func TestAStuckKernelIsNamedAndEvictsNobody(t *testing.T) {
	s := (&world{}).service(t)
	s.cfg.Node = goodNode{}
	ready := true
	s.cfg.Ready = func() bool { return ready }
	s.cfg.Trouble = func() (string, string) { return "KernelStuck", "it hangs" }
	for _, want := range []string{"KernelStuck", "Recovering"} {
		resp, err := s.Status(t.Context(), &runtime.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if c := resp.Status.Conditions[0]; c.Type != runtime.RuntimeReady || !c.Status || c.Reason != want {
			t.Errorf("got %v, want %s", c, want)
		}
		ready = false
	}
}
