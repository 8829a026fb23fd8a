package cri

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/container"
)

func addStopSignal(spec *container.Spec, cfg *runtime.ContainerConfig) error {
	name, err := signalFrom(cfg.GetStopSignal())
	spec.StopSignal = name
	return err
}

// commonNames are the words of everybody else for those of CRI. Three signals have
// two names, of which few know the older.
var commonNames = strings.NewReplacer("RTMINPLUS", "RTMIN+", "RTMAXMINUS", "RTMAX-",
	"SIGCLD", "SIGCHLD", "SIGPOLL", "SIGIO", "SIGIOT", "SIGABRT")

// signalFrom names a signal as images do: "SIGTERM", "SIGRTMIN+3"; "" for the
// runtime's default.
func signalFrom(signal runtime.Signal) (string, error) {
	name, ok := runtime.Signal_name[int32(signal)]
	if !ok {
		return "", invalid("config.stop_signal: %d is unknown", signal)
	}
	if signal == runtime.Signal_SIGNAL_RUNTIME_DEFAULT {
		return "", nil
	}
	return commonNames.Replace(strings.TrimPrefix(name, "SIGNAL_")), nil
}

// signalOf finds what an image may have as well: "TERM", "15", "sigrtmin+3", "37".
// It is the default if there is no such signal.
func signalOf(text string) runtime.Signal {
	name := strings.ToUpper(text)
	if number, err := strconv.Atoi(name); err == nil {
		name = signalName(number)
	}
	name = "SIG" + strings.TrimPrefix(name, "SIG")
	name = strings.NewReplacer("RTMIN+", "RTMINPLUS", "RTMAX-", "RTMAXMINUS").Replace(name)
	return runtime.Signal(runtime.Signal_value["SIGNAL_"+name])
}

func signalName(number int) string {
	const rtMin, rtMax, half = 34, 64, 15
	switch {
	case number == rtMin:
		return "SIGRTMIN"
	case number > rtMin && number <= rtMin+half:
		return fmt.Sprintf("SIGRTMIN+%d", number-rtMin)
	case number == rtMax:
		return "SIGRTMAX"
	case number > rtMin+half && number < rtMax:
		return fmt.Sprintf("SIGRTMAX-%d", rtMax-number)
	}
	return unix.SignalName(unix.Signal(number))
}
