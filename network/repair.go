package network

import "time"

// Finding is something that is not as a network wants it, in the kernel or on disk.
type Finding struct {
	Kind   string `json:"kind"`             // of thing, one of few words: "bridge", "link", "table"
	Object string `json:"object"`           // which one, for people
	Text   string `json:"text"`             // what is wrong with it
	Remedy string `json:"remedy,omitempty"` // what a person can do, where the network does not mend it itself
}

// Repair is what a network did about a finding.
type Repair struct {
	Finding
	At    time.Time `json:"at"`
	Done  string    `json:"done,omitempty"`  // what was done
	Error string    `json:"error,omitempty"` // why it was in vain, if it was
}
