package oci

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/image"
)

const (
	pathEnv = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	termEnv = "TERM=xterm"
)

// setProcess sets what is run, and where.
func setProcess(in Input, s *specs.Spec) error {
	asked := &in.Container.Spec.Process
	args, err := arguments(asked, in.Image)
	if err != nil {
		return err
	}
	env, err := environment(in)
	if err != nil {
		return err
	}
	dir, err := workDir(asked.WorkDir, in.Image.WorkDir)
	if err != nil {
		return err
	}
	s.Process.Args, s.Process.Env, s.Process.Cwd = args, env, dir
	s.Process.Terminal = asked.TTY
	s.Process.Rlimits = slices.Clone(in.Ulimits)
	return nil
}

// arguments are command and args, and the image's where the request has none. A
// command without args also does away with the image's args.
func arguments(asked *container.Process, image image.Config) ([]string, error) {
	command, args := asked.Command, asked.Args
	if len(command) == 0 {
		if len(args) == 0 {
			args = image.Cmd
		}
		// Some tools write an entrypoint of one empty word for none.
		if len(image.Entrypoint) != 1 || image.Entrypoint[0] != "" {
			command = image.Entrypoint
		}
	}
	all := slices.Concat(command, args)
	if len(all) == 0 {
		return nil, invalid("there is nothing to run: config.command and config.args are empty, and the image has neither entrypoint nor command")
	}
	for i, arg := range all {
		if err := checkText(fmt.Sprintf("argument %d of the command", i), arg); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// environment is the defaults, then the image's, then the request's; of two values
// of one name the later counts.
func environment(in Input) ([]string, error) {
	asked := in.Container.Spec.Process
	for _, e := range asked.Env {
		if strings.IndexByte(e, '=') < 1 {
			return nil, invalid("config.envs: %q has no name", e)
		}
	}
	hostname := in.Pod.Spec.Hostname
	if hostname == "" {
		var err error
		if hostname, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("finding the host's name: %w", err)
		}
	}
	defaults := []string{pathEnv}
	if asked.TTY {
		defaults = append(defaults, termEnv)
	}
	env := mergeEnv(append(defaults, "HOSTNAME="+hostname), in.Image.Env, asked.Env)
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if err := checkText(fmt.Sprintf("environment variable %q", name), e); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// mergeEnv joins environments. A variable keeps its first place and gets its last
// value; an entry without "=" removes it, one without a name says nothing.
func mergeEnv(envs ...[]string) []string {
	var merged []string
	place := map[string]int{}
	for _, e := range slices.Concat(envs...) {
		name, _, valued := strings.Cut(e, "=")
		i, known := place[name]
		switch {
		case name == "" || !valued && !known:
		case !valued:
			merged[i] = ""
			delete(place, name)
		case known:
			merged[i] = e
		default:
			place[name] = len(merged)
			merged = append(merged, e)
		}
	}
	return slices.DeleteFunc(merged, func(e string) bool { return e == "" })
}

// workDir is where the process begins; the OCI runtime makes it if it is missing.
func workDir(asked, image string) (string, error) {
	dir := asked
	switch {
	case asked == "":
		dir = path.Join("/", image)
	case !path.IsAbs(asked):
		return "", invalid("config.working_dir %q is not absolute", asked)
	}
	return dir, checkText("the working directory", dir)
}

// ExecProcess returns a further process of the container that spec describes: with
// the same user, environment, capabilities, profiles and directory. The result may
// be changed, but for what it points to, without spec being changed. cmd is not
// checked.
func ExecProcess(spec *specs.Spec, cmd []string, tty bool) *specs.Process {
	p := *spec.Process
	p.Args, p.CommandLine = slices.Clone(cmd), ""
	p.Terminal, p.ConsoleSize = tty, nil
	p.Env = slices.Clone(p.Env)
	p.User.AdditionalGids = slices.Clone(p.User.AdditionalGids)
	p.Rlimits = slices.Clone(p.Rlimits)
	hasTerm := slices.ContainsFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") })
	if tty && !hasTerm {
		p.Env = append(p.Env, termEnv)
	}
	return &p
}
