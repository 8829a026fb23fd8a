package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/ops"
)

// runTime bounds the making of a pod, whatever became of the caller. It is less
// than the four minutes after which the kubelet gives RunPodSandbox up.
const runTime = 3 * time.Minute

// Run makes a pod and returns its id. A call with the key of a pod that is being
// made waits for it; one with the key of a Ready pod gets that one's id. When it
// fails nothing is left, or the pod is listed as NotReady and the rest is owed.
func (m *Manager) Run(ctx context.Context, spec Spec) (id string, err error) {
	if err := m.validate(&spec); err != nil {
		return "", err
	}
	op := m.begin(ctx, "RunPodSandbox", spec.Key, "")
	defer func() { op.End(err) }()
	unlock, err := m.lock(ctx, op, spec.Key)
	if err != nil {
		return "", fmt.Errorf("wait for the earlier call that makes pod %s: %w", spec.Key, err)
	}
	defer unlock()
	if pod := m.newest(spec.Key, Ready); pod != nil {
		return pod.ID, nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runTime)
	defer cancel()
	start := time.Now()
	pod, err := m.plan(op, spec)
	if err != nil {
		return "", err
	}
	d := &draft{m: m, op: op, record: *pod}
	if err = m.start(ctx, d); err != nil {
		return "", m.undo(d.pod(), err)
	}
	m.cfg.Log.Info("a pod is ready", "event", "PodReady", "pod", spec.Key, "id", pod.ID, "ips", d.pod().IPs(), "took", time.Since(start))
	return pod.ID, nil
}

// start makes a planned pod, between its two records.
func (m *Manager) start(ctx context.Context, d *draft) error {
	done := d.op.Stage("record")
	err := d.change(func(*Pod) {})
	done()
	if err == nil {
		err = m.make(ctx, d)
	}
	if err != nil {
		return err
	}
	return d.change(func(p *Pod) { p.State, p.Timeline = Ready, d.op.Timeline() })
}

// plan chooses the id, the addresses and every name. It is all memory.
func (m *Manager) plan(op *ops.Op, spec Spec) (*Pod, error) {
	defer op.Stage("plan")()
	pod := &Pod{
		ID:        newID(),
		Spec:      spec,
		State:     Creating,
		BootID:    m.cfg.BootID,
		CreatedAt: m.createdAt(spec.Key),
		Init:      m.cfg.Process == "always" || spec.Namespaces.SharedPID,
	}
	op.Named(pod.ID)
	pod.Pins = m.pins(pod.ID, spec.Namespaces)
	if spec.Namespaces.HostNetwork {
		return pod, nil
	}
	if err := m.planNetworks(pod); err != nil {
		return nil, errors.Join(err, m.step("give back the addresses", pod, func(ctx context.Context, _ string) error { return m.detach(ctx, pod) }))
	}
	return pod, nil
}

// pins returns where a pod's namespaces are pinned: the network's where `ip
// netns` looks, the others in the pod's directory. A pod in the host's network
// has the host's name too.
func (m *Manager) pins(id string, ns Namespaces) netns.Pins {
	var pins netns.Pins
	dir := filepath.Join(m.cfg.Files.Dir(id), "ns")
	if !ns.HostNetwork {
		pins.Net.Path = filepath.Join(m.cfg.NetnsDir, network.NetnsName(id))
		pins.UTS.Path = filepath.Join(dir, "uts")
	}
	if !ns.HostIPC {
		pins.IPC.Path = filepath.Join(dir, "ipc")
	}
	if !ns.Users.IsZero() {
		pins.User.Path = filepath.Join(dir, "user")
	}
	return pins
}

func (m *Manager) planNetworks(pod *Pod) error {
	for _, driver := range m.cfg.Choose() {
		as, err := m.cfg.Networks[driver].Plan(pod.network(), len(pod.Attachments))
		if err != nil {
			return fmt.Errorf("plan network of pod %s: %w", pod.Spec.Key, err)
		}
		pod.Attachments = append(pod.Attachments, as...)
	}
	return nil
}

// make makes what the record says: the namespaces and then every network in its
// own goroutine, the files beside them, and the init where there is one.
func (m *Manager) make(ctx context.Context, d *draft) error {
	pod := d.pod()
	err := parallel(
		func() error { return m.connect(ctx, d) },
		func() error {
			defer d.op.Stage("files")()
			return wrap("make files", pod, m.cfg.Files.Make(ctx, pod))
		},
	)
	if err != nil || !pod.Init {
		return err
	}
	defer d.op.Stage("init")()
	pid, err := m.cfg.Engine.StartInit(ctx, d.pod())
	d.set(func(p *Pod) { p.InitPID = pid })
	return wrap("start init", pod, err)
}

// connect makes the namespaces and attaches the networks to them.
func (m *Manager) connect(ctx context.Context, d *draft) error {
	pod, done := d.pod(), d.op.Stage("namespaces")
	spec := netns.Spec{
		Net: pod.Pins.Net.Path, IPC: pod.Pins.IPC.Path, UTS: pod.Pins.UTS.Path,
		User: pod.Pins.User.Path, Users: pod.Spec.Namespaces.Users, Sysctls: sysctls(&pod.Spec),
	}
	if spec.UTS != "" {
		spec.Hostname = pod.Spec.Hostname
	}
	pins, err := m.cfg.Pinner.Create(ctx, spec)
	done()
	if err != nil {
		return wrap("make namespaces", pod, err)
	}
	d.set(func(p *Pod) { p.Pins = pins })
	return m.attach(ctx, d)
}

// attach runs the drivers of the planned attachments side by side.
func (m *Manager) attach(ctx context.Context, d *draft) error {
	defer d.op.Stage("network")()
	pod := d.pod()
	groups := byDriver(pod.Attachments)
	var drivers []func() error
	for driver, as := range groups {
		drivers = append(drivers, func() error {
			if len(groups) > 1 {
				defer d.op.Stage("network " + driver)()
			}
			save := func(as []network.Attachment) error { return d.change(replace(driver, as)) }
			done, err := m.cfg.Networks[driver].Attach(ctx, pod.network(), as, save)
			if err != nil {
				return wrap("attach network", pod, err)
			}
			d.set(replace(driver, done))
			return nil
		})
	}
	if err := parallel(drivers...); err != nil {
		return err
	}
	if done := d.pod(); len(done.Attachments) > 0 && len(done.IPs()) == 0 {
		return fmt.Errorf("network %s gave pod %s no address on %s: the kubelet needs one",
			done.Attachments[0].Network, pod.Spec.Key, done.Attachments[0].Interface)
	}
	return nil
}

// createdAt returns now, or an instant after the pod's earlier sandboxes: the
// kubelet takes the newest for the current one, and clocks are set back.
func (m *Manager) createdAt(key Key) time.Time {
	at := time.Now().UTC().Round(0)
	for _, pod := range m.snapshot() {
		same := pod.Spec.Namespace == key.Namespace && pod.Spec.Name == key.Name && pod.Spec.UID == key.UID
		if same && !at.After(pod.CreatedAt) {
			at = pod.CreatedAt.Add(time.Nanosecond)
		}
	}
	return at
}

func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

func wrap(doing string, pod *Pod, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of pod %s: %w", doing, pod.Spec.Key, err)
}
