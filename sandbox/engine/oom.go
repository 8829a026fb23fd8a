package engine

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// grantedOOMScore is what can be had of a wish for oom_score_adj: without
// CAP_SYS_RESOURCE nothing below our own. That is said once, in the log.
func (e *Engine) grantedOOMScore(wish int) (int, error) {
	if mayLowerOOMScore() {
		return wish, nil
	}
	own, err := ownOOMScore()
	if err != nil || wish >= own {
		return wish, err
	}
	e.clamped.Do(func() {
		e.cfg.Log.Warn("oom_score_adj cannot be lowered without CAP_SYS_RESOURCE; processes get ours instead",
			"wanted", wish, "ours", own)
	})
	return own, nil
}

// clampOOMScore puts what can be had of the oom_score_adj of a spec into it, whose
// process is the caller's.
func (e *Engine) clampOOMScore(s *specs.Spec) error {
	if s.Process == nil || s.Process.OOMScoreAdj == nil {
		return nil
	}
	granted, err := e.grantedOOMScore(*s.Process.OOMScoreAdj)
	s.Process.OOMScoreAdj = &granted
	return err
}

// mayLowerOOMScore says whether we have CAP_SYS_RESOURCE in effect. Should that
// be unknown, we try and the runtime reports.
func mayLowerOOMScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// ownOOMScore reads our oom_score_adj.
func ownOOMScore() (int, error) {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("reading our oom_score_adj: %w", err)
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("reading our oom_score_adj: %w", err)
	}
	return own, nil
}
