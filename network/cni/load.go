package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	gocni "github.com/containerd/go-cni"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
)

// conflist is one network as its file describes it.
type conflist struct {
	name    string
	file    string
	raw     json.RawMessage // complete: plugins from the network's own folder are inlined
	plugins []string        // types, in order
	accepts map[string]bool // capabilities that a plugin declares
}

// choose returns those of the offered capability arguments that a plugin of the
// network declares; the others would only swell the record.
func (c conflist) choose(offered map[string]json.RawMessage) map[string]json.RawMessage {
	chosen := make(map[string]json.RawMessage)
	for name, value := range offered {
		if c.accepts[name] {
			chosen[name] = value
		}
	}
	return chosen
}

// scan loads the directory and puts the outcome in place: the new set when it is
// good, else the last good one and the reason.
func (n *Networks) scan() {
	lists, err := load(n.cfg.ConfDir, n.cfg.Only)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.keepLocked(err)
		return
	}
	n.loadErr = nil
	if sameLists(lists, n.lists) {
		return
	}
	n.cfg.Log.Info("CNI networks loaded", "dir", n.cfg.ConfDir, "networks", joinNames(lists))
	n.lists, n.pollErr = lists, nil
	close(n.swapped)
	n.swapped = make(chan struct{})
}

// keepLocked notes why the directory cannot be loaded. It logs a reason once.
func (n *Networks) keepLocked(err error) {
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && len(n.lists) == 0 {
		n.loadErr = nil // nothing was there and nothing is: not worth a warning
		return
	}
	if n.loadErr == nil || n.loadErr.Error() != err.Error() {
		n.cfg.Log.Warn("CNI networks not loaded", "error", err, "in use", joinNames(n.lists))
	}
	n.loadErr = err
}

// load reads the networks of dir in lexical order of the files. With only, it
// returns that network alone and minds the other files only if it is not found.
func load(dir, only string) ([]conflist, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("read CNI directory: %w", err)
	}
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("read CNI directory: %w", err)
	}
	slices.Sort(files)
	var lists []conflist
	var errs []error
	for _, file := range files {
		l, err := loadFile(file)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read %s: %w", file, err))
		case only == l.name:
			return []conflist{l}, nil
		case only == "":
			lists = append(lists, l)
		}
	}
	return lists, errors.Join(errs...)
}

// loadFile reads one network. go-cni judges it, in an instance of its own, so
// that one bad file leaves the others as they are.
func loadFile(file string) (conflist, error) {
	loader, err := gocni.New()
	if err != nil {
		return conflist{}, err
	}
	read := gocni.WithConfFile(file)
	if filepath.Ext(file) == ".conflist" {
		read = gocni.WithConfListFile(file)
	}
	if err := loader.Load(read); err != nil {
		return conflist{}, err
	}
	config := loader.GetConfig().Networks[0].Config
	if err := utils.ValidateNetworkName(config.Name); err != nil {
		return conflist{}, fmt.Errorf("name %q: %w", config.Name, err)
	}
	return newConflist(file, config)
}

func newConflist(file string, config *gocni.NetworkConfList) (conflist, error) {
	l := conflist{name: config.Name, file: file, accepts: make(map[string]bool)}
	var plugins []json.RawMessage
	for _, p := range config.Plugins {
		l.plugins = append(l.plugins, p.Network.Type)
		plugins = append(plugins, json.RawMessage(p.Source))
		for name, declared := range p.Network.Capabilities {
			l.accepts[name] = l.accepts[name] || declared
		}
	}
	raw, err := inline(config.Source, plugins)
	l.raw = raw
	return l, err
}

// inline returns the conflist with all of its plugins in it, those too that
// libcni found in the folder named after the network.
func inline(source string, plugins []json.RawMessage) (json.RawMessage, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(source), &keys); err != nil {
		return nil, err
	}
	all, err := json.Marshal(plugins)
	if err != nil {
		return nil, err
	}
	keys["plugins"] = all
	keys["loadOnlyInlinedPlugins"] = json.RawMessage("true")
	return json.Marshal(keys)
}
