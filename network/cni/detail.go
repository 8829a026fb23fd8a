package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/containerd/errdefs"
	gocni "github.com/containerd/go-cni"
	"github.com/containernetworking/cni/libcni"

	"github.com/crib-runtime/crib/network"
)

// detail is what a record keeps of an attachment for this package.
type detail struct {
	Conflist     json.RawMessage            `json:"conflist"`
	Args         [][2]string                `json:"args"`
	Capabilities map[string]json.RawMessage `json:"capabilities,omitempty"`
	Started      bool                       `json:"started,omitempty"` // ADD may have been run
	Result       json.RawMessage            `json:"result,omitempty"`  // of ADD, in the plugin's version
}

func (d detail) encode() (json.RawMessage, error) {
	return json.Marshal(d)
}

// The annotation under which plugins find the pod's annotations, and those that
// Kubernetes documents for traffic shaping.
const (
	podAnnotations   = "io.kubernetes.cri.pod-annotations"
	ingressBandwidth = "kubernetes.io/ingress-bandwidth"
	egressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// arguments are the CNI_ARGS of a pod, in a fixed order.
func arguments(pod network.Pod) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", pod.Namespace},
		{"K8S_POD_NAME", pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", pod.ID},
		{"K8S_POD_UID", pod.UID},
	}
}

// capabilities returns the capability arguments of a pod by their names.
func capabilities(pod network.Pod) (map[string]json.RawMessage, error) {
	values := map[string]any{podAnnotations: pod.Annotations}
	if ports := portMappings(pod.Ports); len(ports) > 0 {
		values["portMappings"] = ports
	}
	if pod.CgroupParent != "" {
		values["cgroupPath"] = pod.CgroupParent
	}
	if dns := pod.DNS; len(dns.Servers)+len(dns.Searches)+len(dns.Options) > 0 {
		values["dns"] = gocni.DNS{Servers: dns.Servers, Searches: dns.Searches, Options: dns.Options}
	}
	shape, err := bandwidth(pod.Annotations)
	if err != nil {
		return nil, err
	}
	if shape != nil {
		values["bandwidth"] = shape
	}
	encoded := make(map[string]json.RawMessage, len(values))
	for name, value := range values {
		if encoded[name], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("encode capability %s: %w", name, err)
		}
	}
	return encoded, nil
}

func portMappings(ports []network.PortMapping) []gocni.PortMapping {
	var mapped []gocni.PortMapping
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		m := gocni.PortMapping{
			HostPort: int32(p.HostPort), ContainerPort: int32(p.ContainerPort), Protocol: string(p.Protocol),
		}
		if p.HostIP.IsValid() {
			m.HostIP = p.HostIP.String()
		}
		mapped = append(mapped, m)
	}
	return mapped
}

// bandwidth returns the limits that the annotations ask for, in bits a second,
// or nil. The bursts are as large as plugins take them, as containerd has them.
func bandwidth(annotations map[string]string) (*gocni.BandWidth, error) {
	ingress, err := rate(annotations, ingressBandwidth)
	if err != nil {
		return nil, err
	}
	egress, err := rate(annotations, egressBandwidth)
	if err != nil || ingress == 0 && egress == 0 {
		return nil, err
	}
	shape := &gocni.BandWidth{IngressRate: ingress, EgressRate: egress}
	if ingress > 0 {
		shape.IngressBurst = math.MaxUint32
	}
	if egress > 0 {
		shape.EgressBurst = math.MaxUint32
	}
	return shape, nil
}

// rate returns the value of one annotation, 0 when it is absent.
func rate(annotations map[string]string, name string) (uint64, error) {
	text, ok := annotations[name]
	if !ok {
		return 0, nil
	}
	value, err := quantity(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %w", name, err)
	}
	const least, most = 1e3, 1e15
	if value < least || value > most {
		return 0, fmt.Errorf("annotation %s: %q is %d bit/s; want 1k to 1P: %w", name, text, value, errdefs.ErrInvalidArgument)
	}
	return value, nil
}

// job is one attachment made ready for libcni.
type job struct {
	at     int // index among the caller's attachments
	detail detail
	list   *libcni.NetworkConfigList
	rt     *libcni.RuntimeConf
}

// jobs decodes the attachments of this driver: those that it can, and joined what
// is wrong with the others.
func jobs(pod network.Pod, attachments []network.Attachment) ([]job, error) {
	var decoded []job
	var errs []error
	for i, a := range attachments {
		if a.Driver != Driver {
			continue
		}
		j, err := newJob(pod, a)
		if err != nil {
			errs = append(errs, fmt.Errorf("read what the record has of network %s on %s: %w: %w",
				a.Network, a.Interface, err, errdefs.ErrDataLoss))
			continue
		}
		j.at = i
		decoded = append(decoded, j)
	}
	return decoded, errors.Join(errs...)
}

func newJob(pod network.Pod, a network.Attachment) (job, error) {
	var j job
	if err := json.Unmarshal(a.Detail, &j.detail); err != nil {
		return j, err
	}
	list, err := libcni.NetworkConfFromBytes(j.detail.Conflist)
	if err != nil {
		return j, err
	}
	given := make(map[string]any, len(j.detail.Capabilities))
	for name, value := range j.detail.Capabilities {
		given[name] = value
	}
	j.list = list
	j.rt = &libcni.RuntimeConf{
		ContainerID: pod.ID, NetNS: pod.Netns, IfName: a.Interface,
		Args: j.detail.Args, CapabilityArgs: given,
	}
	return j, nil
}
