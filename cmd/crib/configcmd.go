package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/config"
)

func newConfig(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show and check the configuration"}
	cmd.AddCommand(
		&cobra.Command{
			Use: "default", Short: "Print a file with every key, its default and what it means", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return config.WriteDefault(cmd.OutOrStdout()) },
		},
		&cobra.Command{
			Use: "dump", Short: "Print the configuration as it is read, and which file set what", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, origins, err := f.load()
				if err != nil {
					return err
				}
				return config.Dump(cmd.OutOrStdout(), cfg, origins)
			},
		},
		&cobra.Command{
			Use: "check", Short: "Say whether the configuration can be used; the exit status tells, too", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if _, _, err := f.load(); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "the configuration is good")
				return err
			},
		},
	)
	return cmd
}
