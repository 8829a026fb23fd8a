package look

// Step is a part of the way of a packet, as it is told to people.
type Step struct {
	Where string `json:"where"` // "pod", "bridge", "host", "table crib", "others"
	What  string `json:"what"`
	Stops bool   `json:"stops"` // the packet does not get beyond it
}
