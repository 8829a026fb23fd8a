package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// Origins tells where a key was set: by its name, such as "log.level", the file
// and line, as "file:line", or the flag, as "--root". A key with its default is
// not in it.
type Origins map[string]string

// problem is one thing that is wrong with the configuration.
type problem struct {
	place string // "file:line" or a flag; empty where no file is to blame
	key   string // empty where the file as a whole is wrong
	text  string
}

// Error returns "file:line: key: text".
func (p problem) Error() string {
	parts := slices.DeleteFunc([]string{p.place, p.key, p.text}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// Unwrap returns the class of all such errors.
func (p problem) Unwrap() error { return errdefs.ErrInvalidArgument }

// Flags are keys as the command line has them; "" stands for a flag that was not
// given.
type Flags struct {
	Root, State, Listen, LogLevel, LogFormat string
}

// Load reads the file at path and the drop-ins in conf.d beside it, and puts the
// flags over them. A file or directory that is missing is fine. It returns all
// problems joined, each of class ErrInvalidArgument; an error of another class
// says that a file could not be read.
func Load(path string, flags Flags) (Config, Origins, error) {
	files, err := dropIns(filepath.Join(filepath.Dir(path), "conf.d"))
	if err != nil {
		return Config{}, nil, fmt.Errorf("read configuration: %w", err)
	}
	c, set := Default(), Origins{}
	var errs []error
	for _, file := range append([]string{path}, files...) {
		text, err := os.ReadFile(file)
		if file == path && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Config{}, nil, fmt.Errorf("read configuration: %w", err)
		}
		errs = append(errs, merge(&c, document{file, text}, set))
	}
	flags.apply(&c, set)
	derive(&c, set)
	if err := errors.Join(append(errs, validate(c, set))...); err != nil {
		return Config{}, nil, err
	}
	return c, set, nil
}

// apply sets the flags that were given, and notes in set that they were.
func (f Flags) apply(c *Config, set Origins) {
	for _, flag := range []struct {
		name, key, value string
		field            *string
	}{
		{"--root", "root", f.Root, &c.Root},
		{"--state", "state", f.State, &c.State},
		{"--listen", "listen", f.Listen, &c.Listen},
		{"--log-level", "log.level", f.LogLevel, &c.Log.Level},
		{"--log-format", "log.format", f.LogFormat, &c.Log.Format},
	} {
		if flag.value != "" {
			*flag.field, set[flag.key] = flag.value, flag.name
		}
	}
}

// dropIns lists the drop-ins in the order in which they are read. Hidden files
// are what editors leave.
func dropIns(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == ".toml" && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

// merge sets what a file says, and notes in set where.
func merge(c *Config, d document, set Origins) error {
	entries, err := d.entries()
	if err != nil {
		return err
	}
	if err := d.checkVersion(entries); err != nil {
		return err
	}
	known := keys()
	var errs []error
	for _, e := range entries {
		at := slices.IndexFunc(known, func(k key) bool { return k.name == e.key })
		if err := take(c, e, known, at); err != nil {
			errs = append(errs, problem{place: d.place(e.line), key: e.key, text: err.Error()})
		} else if at >= 0 {
			set[e.key] = d.place(e.line)
		}
	}
	return errors.Join(errs...)
}

// take sets the key at an index of known to what an entry has; -1 stands for none.
func take(c *Config, e entry, known []key, at int) error {
	isTable := slices.ContainsFunc(known, func(k key) bool { return strings.HasPrefix(k.name, e.key+".") })
	switch {
	case at >= 0:
		return known[at].set(c, e.value)
	case isTable && !e.table:
		return fmt.Errorf("is %s; want a table: [%s] and its keys in the lines below", kind(e.value), e.key)
	case isTable:
		return nil
	}
	what := "key"
	if e.table {
		what = "table"
	}
	return fmt.Errorf("unknown %s; `crib config default` shows all there are", what)
}

// checkVersion wants the version before all else, and the one that we know.
func (d document) checkVersion(entries []entry) error {
	at := slices.IndexFunc(entries, func(e entry) bool { return e.key == "version" })
	if at != 0 {
		line := 1
		if at > 0 {
			line = entries[at].line
		}
		return problem{place: d.place(line), key: "version", text: `"version = 1" must be at the top of the file`}
	}
	var c Config
	version := keys()[0]
	if err := cmp.Or(version.set(&c, entries[0].value), version.check(c)); err != nil {
		return problem{place: d.place(entries[0].line), key: "version", text: err.Error()}
	}
	return nil
}
