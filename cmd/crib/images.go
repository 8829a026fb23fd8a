package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/sandbox/image"
)

func newImages(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "images", Short: "List, import, export and remove images"}
	cmd.AddCommand(
		question[[]image.Image]{
			use: "list", short: "List images with their names", ask: plain(admin.Client.Images), write: writeImages,
		}.command(f),
		newImport(f), newExport(f),
		&cobra.Command{
			Use: "rm IMAGE...", Short: "Remove images with all their names; unknown ones are fine", Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, refs []string) error {
				client, err := f.client()
				if err != nil {
					return err
				}
				return client.RemoveImages(cmd.Context(), refs)
			},
		},
	)
	return cmd
}

func newImport(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Take the images of an archive, or with - of standard input",
		Long: `Take the images of an archive: an OCI layout or what docker save writes, as a tar
file, maybe compressed by gzip or zstd. Of images for several platforms, only what
is for this machine is kept.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			client, err := f.client()
			if err != nil {
				return err
			}
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer func() { _ = file.Close() }()
				in = file
			}
			bar := newProgress(cmd.ErrOrStderr(), "imported")
			images, err := client.Import(cmd.Context(), io.TeeReader(in, bar))
			bar.end()
			if err != nil {
				return err
			}
			for _, i := range images {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), i.ID, strings.Join(i.Tags, " ")); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newExport(f *flags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "export IMAGE...",
		Short: "Write images to an archive that crib images import and docker load read",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) (err error) {
			client, err := f.client()
			if err != nil {
				return err
			}
			if output == "" {
				if isTerminal(cmd.OutOrStdout()) {
					return errors.New("an archive is nothing for a terminal: name a file with -o, or use a pipe")
				}
				return client.Export(cmd.Context(), cmd.OutOrStdout(), refs)
			}
			bar := newProgress(cmd.ErrOrStderr(), "exported")
			defer bar.end()
			return writeFile(output, func(w io.Writer) error {
				return client.Export(cmd.Context(), io.MultiWriter(w, bar), refs)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file of the archive; standard output without it")
	return cmd
}

// writeFile makes a file, which has its name only when all of it is there.
func writeFile(name string, write func(io.Writer) error) error {
	part := name + ".part"
	file, err := os.Create(part)
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, name)
}

// client asks the daemon of the configuration.
func (f *flags) client() (admin.Client, error) {
	cfg, _, err := f.load()
	return admin.Client{Socket: cfg.Admin.Listen}, err
}

func writeImages(w io.Writer, images []image.Image) error {
	if _, err := fmt.Fprintln(w, "IMAGE\tID\tSIZE\tPINNED"); err != nil {
		return err
	}
	for _, i := range images {
		names := i.Tags
		if len(names) == 0 {
			names = append(i.Digests, "-")[:1]
		}
		id := strings.TrimPrefix(i.ID, "sha256:")
		for _, name := range names {
			if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%t\n", name, id[:min(12, len(id))], size(i.Size), i.Pinned); err != nil {
				return err
			}
		}
	}
	return nil
}

// size is a size for people.
func size(bytes uint64) string { return fmt.Sprintf("%.1fMB", float64(bytes)/1e6) }
