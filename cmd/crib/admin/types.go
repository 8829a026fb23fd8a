package admin

import (
	"net/netip"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/ops"
)

// Source is what the API shows; the daemon implements it. All of it is answered
// from memory.
type Source interface {
	Version() string
	Pods() []Pod
	Containers() []Container
	Networks() []Network
	Ops() Ops
}

// Container is one container as the API shows it.
type Container struct {
	ID        string    `json:"id"`
	PodID     string    `json:"podID"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"createdAt"`
	PID       uint32    `json:"pid,omitempty"`
}

// Ops is what is being done, and what is still to be done.
type Ops struct {
	InFlight []ops.Operation `json:"inFlight"`          // the oldest first
	Owed     []Debt          `json:"owed"`              // what teardowns could not do yet
	Reason   string          `json:"reason,omitempty"`  // "KernelStuck" and the like, while something is stuck
	Message  string          `json:"message,omitempty"` // what is stuck, and where
}

// Debt is what the teardown of a pod or container still owes. It is tried again by
// itself, at least once a minute.
type Debt struct {
	Object   string    `json:"object"` // "pod" or "container"
	Name     string    `json:"name"`
	ID       string    `json:"id"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"error"` // of the last attempt: it names the step
}

// Pod is one pod as the API shows it.
type Pod struct {
	ID          string               `json:"id"`
	Namespace   string               `json:"namespace"`
	Name        string               `json:"name"`
	UID         string               `json:"uid"`
	State       string               `json:"state"`
	CreatedAt   time.Time            `json:"createdAt"`
	IPs         []netip.Addr         `json:"ips"`
	Attachments []network.Attachment `json:"attachments"`
	InitPID     uint32               `json:"initPID,omitempty"`
	Timeline    []Stage              `json:"timeline"`       // of its start
	Owed        string               `json:"owed,omitempty"` // the error of the last attempt at its teardown
}

// Stage is one step of a pod's start.
type Stage struct {
	Name   string  `json:"name"`
	At     float64 `json:"at"` // when it began, in ms since the start did
	Millis float64 `json:"ms"`
}

// Network is one network as the API shows it.
type Network struct {
	Name   string         `json:"name"`
	Driver string         `json:"driver"`
	Used   bool           `json:"used"`            // new pods get it
	Link   string         `json:"link,omitempty"`  // the bridge
	Table  string         `json:"table,omitempty"` // of nftables
	Status network.Status `json:"status"`
	Ranges []Range        `json:"ranges"`

	Findings []network.Finding `json:"findings,omitempty"` // what is wrong with it and stays so for now
	Repairs  []network.Repair  `json:"repairs,omitempty"`  // the last ones, the newest last
	Repaired map[string]uint64 `json:"repaired,omitempty"` // how many of each kind since the start
}

// Range is a range of addresses. Free is not exact above a million million.
type Range struct {
	CIDR    netip.Prefix `json:"cidr"`
	Gateway netip.Addr   `json:"gateway"`
	Used    uint64       `json:"used"`
	Free    uint64       `json:"free"`
}

// Version is what runs.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}
