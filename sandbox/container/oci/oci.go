package oci

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/image"
)

// Input is all that Build is told. Container and Pod are required and not changed.
type Input struct {
	Container *container.Container // its ID and Spec
	Pod       *sandbox.Pod
	PodDir    string // holds hostname, hosts, resolv.conf and shm
	Image     image.Config
	Root      string // the container's root, mounted, as it will start
	// Volumes is the directory for the volumes that the image declares, this
	// container's own. It is made if need be, and may stay from an earlier attempt.
	Volumes     string
	CgroupsPath string
	// PIDNamespace is the path of the PID namespace to join: needed for "target";
	// for "pod" the one of the pod's init if empty.
	PIDNamespace string
	Ulimits      []specs.POSIXRlimit // of every process; none is set by default
	CDIDirs      []string            // with CDI specifications; empty: /etc/cdi and /var/run/cdi
	Features     Features
	AppArmor     *AppArmor // loads the default profile; nil: each container by itself
}

// The annotations that others read: the shim groups a pod's containers by the
// sandbox's id, cAdvisor and tools look for the rest.
const (
	annotationType      = "io.kubernetes.cri.container-type"
	annotationName      = "io.kubernetes.cri.container-name"
	annotationImage     = "io.kubernetes.cri.image-name"
	annotationPodID     = "io.kubernetes.cri.sandbox-id"
	annotationPodName   = "io.kubernetes.cri.sandbox-name"
	annotationNamespace = "io.kubernetes.cri.sandbox-namespace"
	annotationPodUID    = "io.kubernetes.cri.sandbox-uid"
)

// The kubelet says how many seconds a container has to end; the OCI runtime sets
// what begins like the other in the container's scope, if systemd makes one.
const (
	annotationGrace    = "io.kubernetes.pod.terminationGracePeriod"
	annotationScopeEnd = "org.systemd.property.TimeoutStopUSec"
)

// rootPath is relative to the bundle, where the shim mounts the root.
const rootPath = "rootfs"

// Build returns the specification of a container, and who its first process is.
func Build(in Input) (*specs.Spec, container.EffectiveUser, error) {
	s := newSpec(in)
	for _, step := range []func(Input, *specs.Spec) error{
		checkPrivilege,
		checkMounts,
		checkCDI,
		setProcess,
		setCapabilities,
		setNamespaces,
		setResources,
		setUser,
		setDevices,
		setSeccomp, // the default profile depends on capabilities
		setLabels,
		setAppArmor,
		setMounts,
		injectCDI, // adds to what is there
	} {
		if err := step(in, s); err != nil {
			return nil, container.EffectiveUser{}, err
		}
	}
	return s, effectiveUser(s.Process.User), nil
}

// newSpec is what needs no decision.
func newSpec(in Input) *specs.Spec {
	security := in.Container.Spec.Security
	version := in.Features.OCIVersion
	if version == "" {
		version = specs.Version
	}
	s := &specs.Spec{
		Version:     version,
		Root:        &specs.Root{Path: rootPath, Readonly: security.ReadOnlyRoot},
		Process:     &specs.Process{NoNewPrivileges: security.NoNewPrivileges},
		Linux:       &specs.Linux{CgroupsPath: in.CgroupsPath},
		Annotations: annotations(in),
	}
	if !security.Privileged {
		s.Linux.MaskedPaths = security.MaskedPaths
		s.Linux.ReadonlyPaths = security.ReadOnlyPaths
	}
	return s
}

func annotations(in Input) map[string]string {
	spec, pod := &in.Container.Spec, &in.Pod.Spec
	name := spec.Image.UserImage
	if name == "" {
		name = spec.Image.Image
	}
	all := map[string]string{
		annotationType:      "container",
		annotationName:      spec.Name,
		annotationImage:     name,
		annotationPodID:     in.Pod.ID,
		annotationPodName:   pod.Name,
		annotationNamespace: pod.Namespace,
		annotationPodUID:    pod.UID,
	}
	// When the node goes down systemd waits for scopes, 90 s unless it is told. It
	// takes 0 for ever.
	if n, err := strconv.ParseUint(spec.Annotations[annotationGrace], 10, 32); err == nil {
		all[annotationScopeEnd] = fmt.Sprintf("uint64 %d", max(n, 1)*1_000_000)
	}
	return all
}

// checkPrivilege refuses a privileged container in a pod that is not.
func checkPrivilege(in Input, _ *specs.Spec) error {
	if in.Container.Spec.Security.Privileged && !in.Pod.Spec.Privileged {
		return invalid("security_context.privileged is set, and pod %s is not privileged; set it in the pod's config as well", in.Pod.Spec.Key)
	}
	return nil
}

// effectiveUser is the user of a process in the terms of the record.
func effectiveUser(u specs.User) container.EffectiveUser {
	e := container.EffectiveUser{UID: int64(u.UID), GID: int64(u.GID)}
	for _, gid := range u.AdditionalGids {
		e.Groups = append(e.Groups, int64(gid))
	}
	return e
}

// invalid returns an error about the request.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// unavailable returns an error about this host.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrFailedPrecondition)
}

// checkText refuses what cannot be passed on: the kernel ends strings at NUL, and
// the runtime's config.json holds UTF-8 only.
func checkText(where, s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return invalid("%s contains a NUL", where)
	case !utf8.ValidString(s):
		return invalid("%s is not UTF-8, which is all that an OCI runtime can be told", where)
	}
	return nil
}
