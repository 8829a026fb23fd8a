package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/config"
)

// version is set by the build.
var version = "0.0.0-dev"

// The main goroutine keeps the main thread for itself. A goroutine that enters a
// pod's namespace ends with its thread; the main thread cannot end, and would
// stay in that namespace and keep it for ever.
func init() { runtime.LockOSThread() }

func main() {
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "crib:", err)
		os.Exit(1)
	}
}

// defaultConfig may be missing; a file that somebody names may not.
const defaultConfig = "/etc/crib/config.toml"

// flags are those of every command. A flag that is given wins over the files.
type flags struct {
	config, root, state, listen, logLevel, logFormat string
}

func newRoot() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{
		Use:           "crib",
		Short:         "A container runtime for Kubernetes nodes in one daemon, with pod networking built in",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	p := root.PersistentFlags()
	p.StringVar(&f.config, "config", defaultConfig, "configuration file; conf.d/*.toml beside it is read after it")
	p.StringVar(&f.root, "root", "", "directory of what outlives a reboot")
	p.StringVar(&f.state, "state", "", "directory of what does not")
	p.StringVar(&f.listen, "listen", "", "socket of CRI")
	p.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error")
	p.StringVar(&f.logFormat, "log-format", "", "text or json")
	root.AddCommand(newServe(f), newPods(f), newNet(f), newOps(f), newEvents(f), newImages(f), newReset(f), newConfig(f), newCheck(f))
	return root
}

// load reads the configuration and puts the flags over it.
func (f *flags) load() (config.Config, config.Origins, error) {
	if f.config != defaultConfig {
		if _, err := os.Stat(f.config); err != nil {
			return config.Config{}, nil, fmt.Errorf("read configuration: %w", err)
		}
	}
	return config.Load(f.config, config.Flags{
		Root: f.root, State: f.state, Listen: f.listen, LogLevel: f.logLevel, LogFormat: f.logFormat,
	})
}

// logger returns the log of the configuration, on standard error.
func logger(cfg config.Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
}
