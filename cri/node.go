package cri

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The names that the API and the kubelet know us by. The first becomes the
// scheme of container ids in Pod status and must never change.
const (
	runtimeName       = "crib"
	kubeletAPIVersion = "0.1.0"
	criAPIVersion     = "v1"
)

// Version answers the kubelet's first call.
func (s *Service) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{
		Version:           kubeletAPIVersion,
		RuntimeName:       runtimeName,
		RuntimeVersion:    s.cfg.Version,
		RuntimeApiVersion: criAPIVersion,
	}, nil
}

// Status answers from cached verdicts only: a slow answer makes the node NotReady.
func (s *Service) Status(_ context.Context, req *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	ready := &runtime.RuntimeCondition{Type: runtime.RuntimeReady, Status: true}
	if !s.cfg.Ready() {
		// Not false: the kubelet would make the node NotReady at once, for a moment
		// in which its other calls are retried anyway.
		ready.Reason, ready.Message = "Recovering", "pods of an earlier process are being recovered"
	}
	if reason, message := s.cfg.Trouble(); ready.Reason == "" {
		// True all the same: pods that run are not helped by being evicted.
		ready.Reason, ready.Message = reason, message
	}
	net := s.cfg.Node.NetworkStatus()
	features := &runtime.RuntimeHandlerFeatures{}
	features.RecursiveReadOnlyMounts, features.UserNamespaces = s.cfg.Node.MountFeatures()
	resp := &runtime.StatusResponse{
		Status: &runtime.RuntimeStatus{Conditions: []*runtime.RuntimeCondition{
			ready,
			{Type: runtime.NetworkReady, Status: net.Ready, Reason: net.Reason, Message: net.Message},
		}},
		RuntimeHandlers: []*runtime.RuntimeHandler{
			{Name: "", Features: features},
			{Name: "runc", Features: features},
		},
		Features: &runtime.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if req.GetVerbose() {
		resp.Info = s.cfg.Node.Info()
	}
	return resp, nil
}

// RuntimeConfig tells the kubelet which cgroup driver to use.
func (s *Service) RuntimeConfig(context.Context, *runtime.RuntimeConfigRequest) (*runtime.RuntimeConfigResponse, error) {
	driver := runtime.CgroupDriver_CGROUPFS
	if s.cfg.Node.SystemdCgroup() {
		driver = runtime.CgroupDriver_SYSTEMD
	}
	return &runtime.RuntimeConfigResponse{Linux: &runtime.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig takes the node's pod CIDRs. What cannot be understood is
// logged and answered with OK: an error only makes the kubelet repeat it.
func (s *Service) UpdateRuntimeConfig(ctx context.Context, req *runtime.UpdateRuntimeConfigRequest) (*runtime.UpdateRuntimeConfigResponse, error) {
	text := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if text == "" {
		return &runtime.UpdateRuntimeConfigResponse{}, nil
	}
	cidrs, err := parseCIDRs(text)
	if err == nil {
		err = s.cfg.Node.SetPodCIDRs(context.WithoutCancel(ctx), cidrs)
	}
	if err != nil {
		s.cfg.Log.Error("the pod CIDR of the kubelet is of no use", "podCIDR", text, "error", err)
	}
	return &runtime.UpdateRuntimeConfigResponse{}, nil
}

// parseCIDRs reads the kubelet's "v4,v6": one or two prefixes, one of a family,
// in either order. Host bits are masked.
func parseCIDRs(text string) ([]netip.Prefix, error) {
	var cidrs []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		cidr, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		for _, other := range cidrs {
			if other.Addr().Is4() == cidr.Addr().Is4() {
				return nil, fmt.Errorf("%s and %s are of one family", other, cidr)
			}
		}
		cidrs = append(cidrs, cidr.Masked())
	}
	return cidrs, nil
}
