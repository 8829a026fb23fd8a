package oci

import (
	"os"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/image"
)

func TestArgumentsAreTheRequestsElseTheImages(t *testing.T) {
	tests := []struct {
		claim                          string
		command, args, entrypoint, cmd []string
		want                           []string
	}{
		{"image alone", nil, nil, []string{"e"}, []string{"c"}, []string{"e", "c"}},
		{"args replace the image's command", nil, []string{"a"}, []string{"e"}, []string{"c"}, []string{"e", "a"}},
		{"command replaces both", []string{"x"}, nil, []string{"e"}, []string{"c"}, []string{"x"}},
		{"command and args", []string{"x"}, []string{"a"}, []string{"e"}, []string{"c"}, []string{"x", "a"}},
		{"an entrypoint of one empty word is none", nil, nil, []string{""}, []string{"c"}, []string{"c"}},
		{"args alone", nil, []string{"a"}, nil, nil, []string{"a"}},
		{"nothing", nil, nil, nil, nil, nil},
		{"nothing but an empty entrypoint", nil, nil, []string{""}, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			in := kubelet(t)
			in.Container.Spec.Process = container.Process{Command: test.command, Args: test.args}
			in.Image = image.Config{Entrypoint: test.entrypoint, Cmd: test.cmd}
			if test.want == nil {
				wantRefused(t, in, "nothing to run")
				return
			}
			if s, _ := build(t, in); !slices.Equal(s.Process.Args, test.want) {
				t.Errorf("got %q, want %q", s.Process.Args, test.want)
			}
		})
	}
}

func TestLaterEnvironmentWinsInTheFirstPlace(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Process.TTY = true
	in.Image.Env = []string{"A=image", "PATH=/image", "NOVALUE", "=nameless", "B=1"}
	in.Container.Spec.Process.Env = []string{"A=x=y", "TERM=vt100", "C=", "C=2"}
	s, _ := build(t, in)
	want := []string{"PATH=/image", "TERM=vt100", "HOSTNAME=web", "A=x=y", "B=1", "C=2"}
	if !slices.Equal(s.Process.Env, want) {
		t.Errorf("got %q, want %q", s.Process.Env, want)
	}
}

func TestImageEnvironmentWithoutValueUnsets(t *testing.T) {
	in := kubelet(t)
	in.Image.Env = []string{"A=1", "A", "PATH", "A=2"}
	in.Container.Spec.Process.Env = nil
	if s, _ := build(t, in); !slices.Equal(s.Process.Env, []string{"HOSTNAME=web", "A=2"}) {
		t.Errorf("got %q", s.Process.Env)
	}
}

func TestHostnameOfThePodWithoutOneIsTheHosts(t *testing.T) {
	in := kubelet(t)
	in.Pod.Spec.Hostname = ""
	name, err := os.Hostname()
	must(t, err)
	if s, _ := build(t, in); !slices.Contains(s.Process.Env, "HOSTNAME="+name) {
		t.Errorf("no HOSTNAME=%s in %q", name, s.Process.Env)
	}
}

func TestStringsThatCannotBePassedOnAreRefused(t *testing.T) {
	for what, change := range map[string]func(*container.Process){
		"has no name":         func(p *container.Process) { p.Env = []string{"novalue"} },
		`"=x" has no name`:    func(p *container.Process) { p.Env = []string{"=x"} },
		`"A" contains a NUL`:  func(p *container.Process) { p.Env = []string{"A=\x00"} },
		`"A" is not UTF-8`:    func(p *container.Process) { p.Env = []string{"A=\xff"} },
		"argument 1":          func(p *container.Process) { p.Command = []string{"a", "b\x00"} },
		"is not absolute":     func(p *container.Process) { p.WorkDir = "work" },
		"directory is not UT": func(p *container.Process) { p.WorkDir = "/\xff" },
	} {
		t.Run(what, func(t *testing.T) {
			in := kubelet(t)
			change(&in.Container.Spec.Process)
			wantRefused(t, in, what)
		})
	}
}

func TestWorkDirIsTheRequestsElseTheImagesElseRoot(t *testing.T) {
	tests := []struct{ asked, image, want string }{
		{"/a", "/b", "/a"}, {"", "/b", "/b"}, {"", "", "/"}, {"", "srv", "/srv"}, {"", "../../etc", "/etc"},
	}
	for _, test := range tests {
		in := kubelet(t)
		in.Container.Spec.Process.WorkDir, in.Image.WorkDir = test.asked, test.image
		if s, _ := build(t, in); s.Process.Cwd != test.want {
			t.Errorf("%+v: got %q", test, s.Process.Cwd)
		}
	}
}

func TestNoLimitsPerProcessButConfiguredOnes(t *testing.T) {
	in := kubelet(t)
	if s, _ := build(t, in); s.Process.Rlimits != nil {
		t.Errorf("got %v, want none", s.Process.Rlimits)
	}
	in.Ulimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 4096}}
	if s, _ := build(t, in); !slices.Equal(s.Process.Rlimits, in.Ulimits) {
		t.Errorf("got %v, want %v", s.Process.Rlimits, in.Ulimits)
	}
}

func TestExecIsLikeTheContainerButForCommandAndTerminal(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Security.User.Name = "app"
	in.Container.Spec.Security.NoNewPrivileges = true
	s, _ := build(t, in)
	before := plain(t, s)
	p := ExecProcess(s, []string{"id"}, true)
	if !slices.Equal(p.Args, []string{"id"}) || !p.Terminal || !slices.Contains(p.Env, "TERM=xterm") {
		t.Errorf("got %q, terminal %v, env %q", p.Args, p.Terminal, p.Env)
	}
	if p.User.UID != 1000 || !p.NoNewPrivileges || p.Cwd != "/" || p.Capabilities == nil {
		t.Errorf("got %+v, want the container's", p)
	}
	p.Env[0], p.User.AdditionalGids[0], p.Args[0] = "X=1", 9, "other"
	if plain(t, s) != before {
		t.Error("the container's own spec changed")
	}
}

func TestExecKeepsTheTerminalTypeThatTheUserSet(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Process.Env = []string{"TERM=vt100"}
	s, _ := build(t, in)
	if p := ExecProcess(s, []string{"sh"}, true); slices.Contains(p.Env, "TERM=xterm") {
		t.Errorf("got %q", p.Env)
	}
	if p := ExecProcess(s, []string{"sh"}, false); p.Terminal || len(p.Env) != len(s.Process.Env) {
		t.Errorf("without a terminal: %v, %q", p.Terminal, p.Env)
	}
}
