package cni

import "context"

// Quantity is quantity.
var Quantity = quantity

// Scan loads the directory now, as Serve does after a change.
func (n *Networks) Scan() { n.scan() }

// Poll asks for the state of the networks now, as Serve does every so often.
func (n *Networks) Poll(ctx context.Context) { n.pollOnce(ctx) }

// Swapped is closed when other networks come into use.
func (n *Networks) Swapped() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.swapped
}
