package image

import "time"

// Image is an image of the node.
type Image struct {
	ID      string   `json:"id"`                // digest of the configuration, "sha256:…"
	Tags    []string `json:"tags,omitempty"`    // "docker.io/library/busybox:1.36"
	Digests []string `json:"digests,omitempty"` // "docker.io/library/busybox@sha256:…"
	Size    uint64   `json:"size"`              // bytes of its content, compressed as it came
	Pinned  bool     `json:"pinned,omitempty"`  // the kubelet's garbage collection leaves it
	Config  Config   `json:"config"`
}

// Config is what a container inherits from its image.
type Config struct {
	User       string   `json:"user,omitempty"` // as in the image: name or uid, maybe with ":group"
	Env        []string `json:"env,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	WorkDir    string   `json:"workDir,omitempty"`
	Volumes    []string `json:"volumes,omitempty"`
	StopSignal string   `json:"stopSignal,omitempty"`
}

// Auth is what a registry is told about the puller. The zero value is nobody.
type Auth struct {
	Username, Password string
	IdentityToken      string
	RegistryToken      string
	Server             string // only this registry is told; "" stands for any
}

// FilesystemUsage is the space that images take.
type FilesystemUsage struct {
	Mountpoint string
	At         time.Time
	UsedBytes  uint64
	InodesUsed uint64
}
