package cri

import (
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

type (
	config   = runtime.ContainerConfig
	security = runtime.LinuxContainerSecurityContext
)

// createRequest is one that is in order, until it is changed.
func createRequest(change func(*config)) *runtime.CreateContainerRequest {
	cfg := &config{
		Metadata: &runtime.ContainerMetadata{Name: "main", Attempt: 3},
		Image:    &runtime.ImageSpec{Image: "sha256:1234", UserSpecifiedImage: "busybox"},
		Linux:    &runtime.LinuxContainerConfig{SecurityContext: &security{}, Resources: &runtime.LinuxContainerResources{}},
	}
	change(cfg)
	return &runtime.CreateContainerRequest{PodSandboxId: "p", Config: cfg, SandboxConfig: &runtime.PodSandboxConfig{LogDirectory: "/logs"}}
}

func mount(m *runtime.Mount) func(*config) { return func(c *config) { c.Mounts = []*runtime.Mount{m} } }

func device(d *runtime.Device) func(*config) {
	return func(c *config) { c.Devices = []*runtime.Device{d} }
}

func env(key, value string) func(*config) {
	return func(c *config) { c.Envs = []*runtime.KeyValue{{Key: key, Value: []byte(value)}} }
}

func secure(change func(*security)) func(*config) {
	return func(c *config) { change(c.Linux.SecurityContext) }
}

func limit(change func(*runtime.LinuxContainerResources)) func(*config) {
	return func(c *config) { change(c.Linux.Resources) }
}

func spaces(o *runtime.NamespaceOption) func(*config) {
	return secure(func(s *security) { s.NamespaceOptions = o })
}

func TestBadContainersAreRefusedWithTheFieldsName(t *testing.T) {
	image, id := &runtime.ImageSpec{Image: "i"}, &runtime.Int64Value{Value: 1}
	rro := func(readonly bool, p runtime.MountPropagation) func(*config) {
		return mount(&runtime.Mount{ContainerPath: "/a", HostPath: "/b", RecursiveReadOnly: true, Readonly: readonly, Propagation: p})
	}
	for _, test := range []struct {
		field  string
		change func(*config)
	}{
		{"config.metadata.name", func(c *config) { c.Metadata = nil }},
		{"config.image.image", func(c *config) { c.Image = nil }},
		{"config.log_path", func(c *config) { c.LogPath = "../../etc/passwd" }},
		{"config.stop_signal", func(c *config) { c.StopSignal = 99 }},
		{"config.envs[0].key", env("", "x")},
		{"config.envs[0].key", env("a=b", "x")},
		{"config.envs[0].value", env("A", "x\x00")},
		{"config.mounts[0].container_path", mount(nil)},
		{"config.mounts[0].host_path", mount(&runtime.Mount{ContainerPath: "/a"})},
		{"config.mounts[0].host_path", mount(&runtime.Mount{ContainerPath: "/a", HostPath: "/b", Image: image})},
		{"config.mounts[0].image.image", mount(&runtime.Mount{ContainerPath: "/a", Image: &runtime.ImageSpec{}})},
		{"config.mounts[0].image_sub_path", mount(&runtime.Mount{ContainerPath: "/a", HostPath: "/b", ImageSubPath: "c"})},
		{"config.mounts[0].propagation", mount(&runtime.Mount{ContainerPath: "/a", HostPath: "/b", Propagation: 7})},
		{"config.mounts[0].recursive_read_only", rro(false, 0)},
		{"config.mounts[0].recursive_read_only", rro(true, 1)},
		{"config.mounts[0].uidMappings", mount(&runtime.Mount{ContainerPath: "/a", HostPath: "/b", UidMappings: []*runtime.IDMapping{{}}, GidMappings: []*runtime.IDMapping{{Length: 1}}})},
		{"config.mounts[0].gidMappings", mount(&runtime.Mount{ContainerPath: "/a", HostPath: "/b", UidMappings: []*runtime.IDMapping{{Length: 1}}})},
		{"config.mounts[0].readonly", mount(&runtime.Mount{ContainerPath: "/a", Image: &runtime.ImageSpec{Image: "i"}})},
		{"config.devices[0].host_path", device(&runtime.Device{})},
		{"config.devices[0].permissions", device(&runtime.Device{HostPath: "/dev/null", Permissions: "rx"})},
		{"config.CDI_devices[0].name", func(c *config) { c.CDIDevices = []*runtime.CDIDevice{nil} }},
		{"resources.cpu_period", limit(func(r *runtime.LinuxContainerResources) { r.CpuPeriod = -1 })},
		{"resources.cpu_quota", limit(func(r *runtime.LinuxContainerResources) { r.CpuQuota = -2 })},
		{"resources.cpu_shares", limit(func(r *runtime.LinuxContainerResources) { r.CpuShares = -2 })},
		{"resources.memory_limit_in_bytes", limit(func(r *runtime.LinuxContainerResources) { r.MemoryLimitInBytes = -5 })},
		{"resources.memory_swap_limit_in_bytes", limit(func(r *runtime.LinuxContainerResources) { r.MemorySwapLimitInBytes = -5 })},
		{"resources.oom_score_adj", limit(func(r *runtime.LinuxContainerResources) { r.OomScoreAdj = 1001 })},
		{"resources.hugepage_limits[0].page_size", limit(func(r *runtime.LinuxContainerResources) { r.HugepageLimits = []*runtime.HugepageLimit{nil} })},
		{"security_context.privileged", secure(func(s *security) { s.Privileged = true })},
		{"security_context.run_as_group", secure(func(s *security) { s.RunAsGroup = id })},
		{"security_context.run_as_username", secure(func(s *security) { s.RunAsUser, s.RunAsUsername = id, "me" })},
		{"security_context.run_as_user", secure(func(s *security) { s.RunAsUser = &runtime.Int64Value{Value: -1} })},
		{"security_context.run_as_group", secure(func(s *security) { s.RunAsUser, s.RunAsGroup = id, &runtime.Int64Value{Value: 1 << 32} })},
		{"security_context.supplemental_groups", secure(func(s *security) { s.SupplementalGroups = []int64{-1} })},
		{"security_context.supplemental_groups_policy", secure(func(s *security) { s.SupplementalGroupsPolicy = 4 })},
		{"security_context.seccomp.localhost_ref", secure(func(s *security) { s.Seccomp = &runtime.SecurityProfile{ProfileType: 2} })},
		{"security_context.seccomp.localhost_ref", secure(func(s *security) { s.SeccompProfilePath = "localhost/relative" })},
		{"security_context.seccomp", secure(func(s *security) { s.SeccompProfilePath = "localhost/" })},
		{"security_context.apparmor.profile_type", secure(func(s *security) { s.Apparmor = &runtime.SecurityProfile{ProfileType: 8} })},
		{"namespace_options.network", spaces(&runtime.NamespaceOption{Network: runtime.NamespaceMode_TARGET})},
		{"namespace_options.ipc", spaces(&runtime.NamespaceOption{Ipc: runtime.NamespaceMode_CONTAINER})},
		{"namespace_options.pid", spaces(&runtime.NamespaceOption{Pid: 9})},
		{"namespace_options.target_id", spaces(&runtime.NamespaceOption{Pid: runtime.NamespaceMode_TARGET})},
		{"namespace_options.userns_options", spaces(&runtime.NamespaceOption{UsernsOptions: &runtime.UserNamespace{}})},
	} {
		_, err := containerSpecFrom(createRequest(test.change), &sandbox.Pod{})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: got %v", test.field, err)
		}
	}
}

func TestContainersOfNothingAreNoPanic(t *testing.T) {
	for _, req := range []*runtime.CreateContainerRequest{
		nil, {}, {Config: &config{}},
		{Config: &config{Linux: &runtime.LinuxContainerConfig{}, Mounts: []*runtime.Mount{nil}, Envs: []*runtime.KeyValue{nil}}},
	} {
		if _, err := containerSpecFrom(req, &sandbox.Pod{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: got %v", req, err)
		}
	}
	spec, err := containerSpecFrom(createRequest(func(c *config) { c.Linux = nil }), &sandbox.Pod{})
	if want := (container.Security{Namespaces: container.Namespaces{PID: "pod"}}); err != nil || !reflect.DeepEqual(spec.Security, want) {
		t.Errorf("without Linux: got %+v, %v", spec.Security, err)
	}
}

func TestSpecsHaveWhatWasAsked(t *testing.T) {
	req := createRequest(func(c *config) {
		c.Command, c.Args, c.WorkingDir, c.Tty, c.Stdin, c.StdinOnce = []string{"sh"}, []string{"-c", "true"}, "/srv", true, true, true
		c.Envs = []*runtime.KeyValue{{Key: "A", Value: []byte("b=c")}, {Key: "EMPTY"}}
		c.Labels, c.Annotations, c.LogPath = map[string]string{"l": "1"}, map[string]string{"a": "2"}, "main/3.log"
		c.Devices = []*runtime.Device{{HostPath: "/dev/null", Permissions: "mrw"}}
		c.CDIDevices = []*runtime.CDIDevice{{Name: "v.com/c=d"}}
		c.StopSignal = runtime.Signal_SIGNAL_SIGRTMINPLUS3
		sc := c.Linux.SecurityContext
		sc.RunAsUser, sc.RunAsGroup, sc.SupplementalGroups = &runtime.Int64Value{Value: 7}, &runtime.Int64Value{}, []int64{8}
		sc.SupplementalGroupsPolicy = runtime.SupplementalGroupsPolicy_Strict
		sc.Capabilities = &runtime.Capability{AddCapabilities: []string{"cap_net_raw", "sys_time"}, DropCapabilities: []string{"ALL"}}
		sc.Seccomp, sc.ApparmorProfile = &runtime.SecurityProfile{}, "localhost/mine"
		sc.SelinuxOptions = &runtime.SELinuxOption{Type: "t", Level: "s0:c1"}
		sc.ReadonlyRootfs, sc.NoNewPrivs, sc.MaskedPaths, sc.ReadonlyPaths = true, true, []string{"/m"}, []string{"/r"}
	})
	uid, gid := int64(7), int64(0)
	want := container.Spec{
		Key:   container.Key{PodID: "p", Name: "main", Attempt: 3},
		Image: container.ImageSpec{Image: "sha256:1234", UserImage: "busybox"},
		Process: container.Process{
			Command: []string{"sh"}, Args: []string{"-c", "true"}, WorkDir: "/srv", Env: []string{"A=b=c", "EMPTY="},
			TTY: true, Stdin: true, StdinOnce: true,
		},
		Devices:    []container.Device{{HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: "mrw"}},
		CDIDevices: []string{"v.com/c=d"},
		Labels:     map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
		LogPath: "/logs/main/3.log", StopSignal: "SIGRTMIN+3",
		Security: container.Security{
			ReadOnlyRoot: true, NoNewPrivileges: true,
			User:         container.User{UID: &uid, GID: &gid, SupplementalGroups: []int64{8}, StrictGroups: true},
			Capabilities: container.Capabilities{Add: []string{"NET_RAW", "SYS_TIME"}, Drop: []string{"ALL"}},
			Namespaces:   container.Namespaces{PID: "pod"},
			Seccomp:      container.Profile{Kind: "default"},
			AppArmor:     container.Profile{Kind: "localhost", Localhost: "mine"},
			MaskedPaths:  []string{"/m"}, ReadOnlyPaths: []string{"/r"},
			SELinux: "::t:s0:c1",
		},
	}
	got, err := containerSpecFrom(req, &sandbox.Pod{ID: "p"})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestPIDNamespacesAreThoseAskedForOrThePods(t *testing.T) {
	mode := func(m runtime.NamespaceMode) *runtime.NamespaceOption {
		return &runtime.NamespaceOption{Pid: m, TargetId: "other"}
	}
	none, shared, host := sandbox.Namespaces{}, sandbox.Namespaces{SharedPID: true}, sandbox.Namespaces{HostPID: true}
	for _, test := range []struct {
		options *runtime.NamespaceOption
		pod     sandbox.Namespaces
		want    container.Namespaces
	}{
		{nil, none, container.Namespaces{PID: "pod"}},
		{nil, shared, container.Namespaces{PID: "pod"}},
		{nil, host, container.Namespaces{PID: "node"}},
		{mode(runtime.NamespaceMode_POD), none, container.Namespaces{PID: "pod"}},
		{mode(runtime.NamespaceMode_POD), host, container.Namespaces{PID: "node"}},
		{mode(runtime.NamespaceMode_CONTAINER), shared, container.Namespaces{PID: "container"}},
		{mode(runtime.NamespaceMode_NODE), none, container.Namespaces{PID: "node"}},
		{mode(runtime.NamespaceMode_TARGET), none, container.Namespaces{PID: "target", Target: "other"}},
	} {
		if got, err := containerNamespacesFrom(test.options, test.pod); err != nil || got != test.want {
			t.Errorf("%v in %+v: got %+v, %v", test.options, test.pod, got, err)
		}
	}
}

func TestLogsAreBelowTheDirectoryOfTheirPod(t *testing.T) {
	for _, test := range []struct{ request, pod, name, want string }{
		{"/logs", "/else", "a/0.log", "/logs/a/0.log"},
		{"", "/logs", "a/0.log", "/logs/a/0.log"},
		{"/logs", "", "/tmp/a.log", "/logs/tmp/a.log"},
		{"/logs", "", "", ""},
		{"", "", "a.log", ""},
	} {
		req := createRequest(func(c *config) { c.LogPath = test.name })
		req.SandboxConfig.LogDirectory = test.request
		got, err := logPathFrom(req, &sandbox.Pod{Spec: sandbox.Spec{LogDirectory: test.pod}})
		if err != nil || got != test.want {
			t.Errorf("%+v: got %q, %v", test, got, err)
		}
	}
	req := createRequest(func(c *config) { c.LogPath = "a.log" })
	req.SandboxConfig.LogDirectory = "logs"
	if _, err := logPathFrom(req, &sandbox.Pod{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a relative directory: got %v", err)
	}
}

func TestSignalsComeBackAsTheyWere(t *testing.T) {
	older := map[runtime.Signal]runtime.Signal{
		runtime.Signal_SIGNAL_SIGCLD:  runtime.Signal_SIGNAL_SIGCHLD,
		runtime.Signal_SIGNAL_SIGPOLL: runtime.Signal_SIGNAL_SIGIO,
		runtime.Signal_SIGNAL_SIGIOT:  runtime.Signal_SIGNAL_SIGABRT,
	}
	for number := range runtime.Signal_name {
		want := runtime.Signal(number)
		if newer, ok := older[want]; ok {
			want = newer
		}
		name, err := signalFrom(runtime.Signal(number))
		if got := signalOf(name); err != nil || got != want {
			t.Errorf("%d: %q, %v comes back as %v", number, name, err, got)
		}
	}
	for text, want := range map[string]runtime.Signal{
		"TERM": runtime.Signal_SIGNAL_SIGTERM, "sigint": runtime.Signal_SIGNAL_SIGINT, "15": runtime.Signal_SIGNAL_SIGTERM,
		"SIGRTMIN+3": runtime.Signal_SIGNAL_SIGRTMINPLUS3, "RTMAX-1": runtime.Signal_SIGNAL_SIGRTMAXMINUS1,
		"34": runtime.Signal_SIGNAL_SIGRTMIN, "37": runtime.Signal_SIGNAL_SIGRTMINPLUS3, "62": runtime.Signal_SIGNAL_SIGRTMAXMINUS2,
		"": 0, "no such": 0, "1000": 0,
	} {
		if got := signalOf(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestResourcesComeBackAsTheyWere(t *testing.T) {
	want := &runtime.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: -1, CpuShares: 512, CpusetCpus: "0-1", CpusetMems: "0",
		MemoryLimitInBytes: 1 << 20, MemorySwapLimitInBytes: 2 << 20, OomScoreAdj: -998,
		HugepageLimits: []*runtime.HugepageLimit{{PageSize: "1GB", Limit: 1}, {PageSize: "2MB"}},
		Unified:        map[string]string{"memory.high": "max"},
	}
	resources, err := resourcesFrom("linux", want)
	if got := resourcesOf(resources); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestMountsComeBackAsTheyWere(t *testing.T) {
	want := &config{Mounts: []*runtime.Mount{
		{ContainerPath: "/a", HostPath: "/b", Readonly: true, RecursiveReadOnly: true, SelinuxRelabel: true},
		{ContainerPath: "/a", HostPath: "/b", Propagation: runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, MountOptions: []string{"noexec"}},
		{ContainerPath: "/a", HostPath: "/b", Propagation: runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		{ContainerPath: "/a", Image: &runtime.ImageSpec{Image: "i"}, ImageSubPath: "c", Readonly: true},
	}}
	var spec container.Spec
	err := addMounts(&spec, want)
	if got := (&config{Mounts: mountsOf(spec.Mounts)}); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzContainerSpec(f *testing.F) {
	for _, change := range []func(*config){
		func(*config) {}, env("A", "b"), mount(&runtime.Mount{ContainerPath: "/a", HostPath: "/b"}),
		spaces(&runtime.NamespaceOption{Pid: 3, TargetId: "t"}), func(c *config) { c.StopSignal = 40 },
	} {
		b, err := proto.Marshal(createRequest(change))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req := &runtime.CreateContainerRequest{}
		if proto.Unmarshal(b, req) != nil {
			return
		}
		pod := &sandbox.Pod{ID: "p"}
		spec, err := containerSpecFrom(req, pod)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("got %v", err)
			}
			return
		}
		status := containerStatusOf(&container.Container{ID: "c", Spec: spec, State: container.Created})
		if got, want := (&config{Mounts: status.Mounts}), (&config{Mounts: req.Config.Mounts}); len(got.Mounts) != len(want.Mounts) {
			t.Errorf("%d mounts become %d", len(want.Mounts), len(got.Mounts))
		}
		if status.Image.Image == "" || status.ImageRef == "" || status.Metadata.Name == "" {
			t.Errorf("got an empty field: %v", status)
		}
	})
}
