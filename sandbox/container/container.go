package container

import "time"

// State is where a container is in its life; the drawing is in doc.go.
type State string

// The states of a container. Creating is never shown to clients.
const (
	Creating State = "Creating"
	Created  State = "Created"
	Running  State = "Running"
	Exited   State = "Exited"
	Unknown  State = "Unknown"
)

// Reasons of an exit, as the kubelet shows them.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonOOMKilled  = "OOMKilled"
	ReasonStartError = "StartError"
)

// Container is the record of a container. Records are immutable once the manager
// holds them.
type Container struct {
	ID         string        `json:"id"` // 64 hex digits
	Spec       Spec          `json:"spec"`
	State      State         `json:"state"`
	BootID     string        `json:"bootID"`
	ImageID    string        `json:"imageID"`
	ImageRef   string        `json:"imageRef"` // a digest reference of the image if it has one, else its id
	CreatedAt  time.Time     `json:"createdAt"`
	StartedAt  time.Time     `json:"startedAt,omitzero"`
	PID        uint32        `json:"pid,omitempty"`
	User       EffectiveUser `json:"user"`
	StopSignal string        `json:"stopSignal"` // the effective one
	Exit       Exit          `json:"exit,omitzero"`
	Removing   bool          `json:"removing,omitempty"`
}

// EffectiveUser is who the first process became.
type EffectiveUser struct {
	UID    int64   `json:"uid"`
	GID    int64   `json:"gid"`
	Groups []int64 `json:"groups,omitempty"`
}

// Exit is how a container ended.
type Exit struct {
	At      time.Time `json:"at,omitzero"`
	Code    int32     `json:"code"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
}
