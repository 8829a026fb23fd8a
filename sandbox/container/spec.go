package container

import "github.com/crib-runtime/crib/network/netns"

// Key names a container as the kubelet does.
type Key struct {
	PodID   string `json:"podID"`
	Name    string `json:"name"`
	Attempt uint32 `json:"attempt"`
}

// Spec is what was asked of Create. It is echoed to clients as it was given.
type Spec struct {
	Key
	Image       ImageSpec         `json:"image"`
	Process     Process           `json:"process"`
	Mounts      []Mount           `json:"mounts,omitempty"`
	Devices     []Device          `json:"devices,omitempty"`
	CDIDevices  []string          `json:"cdiDevices,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	LogPath     string            `json:"logPath,omitempty"` // absolute; "" writes no log
	StopSignal  string            `json:"stopSignal,omitempty"`
	Security    Security          `json:"security"`
	Resources   Resources         `json:"resources"`
}

// ImageSpec is the image as the request has it: usually the id that PullImage or
// ImageStatus answered, and the name that the user wrote.
type ImageSpec struct {
	Image     string `json:"image"`
	UserImage string `json:"userImage,omitempty"`
}

// Process is what runs, and how it is connected.
type Process struct {
	Command   []string `json:"command,omitempty"` // replaces the image's entrypoint
	Args      []string `json:"args,omitempty"`    // replaces the image's command
	WorkDir   string   `json:"workDir,omitempty"`
	Env       []string `json:"env,omitempty"` // "NAME=value"
	Stdin     bool     `json:"stdin,omitempty"`
	StdinOnce bool     `json:"stdinOnce,omitempty"`
	TTY       bool     `json:"tty,omitempty"`
}

// Mount is one mount of a container.
type Mount struct {
	HostPath          string   `json:"hostPath,omitempty"`
	ContainerPath     string   `json:"containerPath"`
	ReadOnly          bool     `json:"readOnly,omitempty"`
	RecursiveReadOnly bool     `json:"recursiveReadOnly,omitempty"`
	SELinuxRelabel    bool     `json:"selinuxRelabel,omitempty"`
	Propagation       string   `json:"propagation,omitempty"` // "private", "rslave" or "rshared"
	Image             string   `json:"image,omitempty"`       // an image volume
	ImageSubPath      string   `json:"imageSubPath,omitempty"`
	ImageID           string   `json:"imageID,omitempty"` // of Image, when it was mounted
	Options           []string `json:"options,omitempty"`
	// Users maps the ids of the files; zero leaves them.
	Users netns.Users `json:"users,omitzero"`
}

// Device is one device node, or a directory of them.
type Device struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	Permissions   string `json:"permissions"` // of "rwm"
}

// Security is what a container may do, and who it is.
type Security struct {
	Privileged      bool         `json:"privileged,omitempty"`
	ReadOnlyRoot    bool         `json:"readOnlyRoot,omitempty"`
	NoNewPrivileges bool         `json:"noNewPrivileges,omitempty"`
	User            User         `json:"user"`
	Capabilities    Capabilities `json:"capabilities"`
	Namespaces      Namespaces   `json:"namespaces"`
	Seccomp         Profile      `json:"seccomp"`
	AppArmor        Profile      `json:"appArmor"`
	MaskedPaths     []string     `json:"maskedPaths,omitempty"`
	ReadOnlyPaths   []string     `json:"readOnlyPaths,omitempty"`
	SELinux         string       `json:"selinux,omitempty"` // "user:role:type:level"
}

// User is who the process is. Unset fields are the image's.
type User struct {
	UID                *int64  `json:"uid,omitempty"`
	Name               string  `json:"name,omitempty"`
	GID                *int64  `json:"gid,omitempty"`
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`
	StrictGroups       bool    `json:"strictGroups,omitempty"` // not those of the image's /etc/group
}

// Capabilities change the default set; "ALL" is all of them. Names have no "CAP_".
type Capabilities struct {
	Add     []string `json:"add,omitempty"`
	Drop    []string `json:"drop,omitempty"`
	Ambient []string `json:"ambient,omitempty"`
}

// Namespaces says which namespaces a container does not have as the pod does.
type Namespaces struct {
	HostNetwork bool   `json:"hostNetwork,omitempty"`
	HostIPC     bool   `json:"hostIPC,omitempty"`
	PID         string `json:"pid"`              // "container", "pod", "node" or "target"
	Target      string `json:"target,omitempty"` // the container whose PID namespace is joined
}

// Profile is a profile of seccomp or AppArmor. The zero value is none: unconfined
// for seccomp, and the runtime's default for AppArmor where it is enabled.
type Profile struct {
	Kind      string `json:"kind,omitempty"`      // "", "default", "unconfined" or "localhost"
	Localhost string `json:"localhost,omitempty"` // path, or name of a loaded profile
}

// Resources are limits of a container's cgroup. Zero is unset.
type Resources struct {
	CPUPeriod     int64             `json:"cpuPeriod,omitempty"` // microseconds
	CPUQuota      int64             `json:"cpuQuota,omitempty"`  // microseconds
	CPUShares     int64             `json:"cpuShares,omitempty"`
	CPUSetCPUs    string            `json:"cpusetCPUs,omitempty"`
	CPUSetMems    string            `json:"cpusetMems,omitempty"`
	MemoryLimit   int64             `json:"memoryLimit,omitempty"`     // bytes
	MemorySwap    int64             `json:"memorySwapLimit,omitempty"` // bytes, memory and swap together
	OOMScoreAdj   int64             `json:"oomScoreAdj,omitempty"`
	HugepageLimit map[string]uint64 `json:"hugepageLimits,omitempty"` // bytes by page size, as "2MB"
	Unified       map[string]string `json:"unified,omitempty"`        // files of cgroup v2
}
