package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/sandbox/image"
)

// ImageStore makes the node one that has images.
func (node) ImageStore() admin.Images { return shelf{} }

// shelf has two images, and takes and gives archives of one word.
type shelf struct{}

func (shelf) Images(context.Context) ([]image.Image, error) {
	return []image.Image{
		{ID: "sha256:" + strings.Repeat("a", 64), Tags: []string{"a.io/b:1", "a.io/b:2"}, Size: 1500000, Pinned: true},
		{ID: "sha256:" + strings.Repeat("b", 64)},
	}, nil
}

func (shelf) Import(_ context.Context, r io.Reader) ([]image.Image, error) {
	b, err := io.ReadAll(r)
	if err != nil || string(b) != "archive" {
		return nil, fmt.Errorf("%q: %w: %w", b, errdefs.ErrInvalidArgument, err)
	}
	return []image.Image{{ID: "sha256:c", Tags: []string{"c.io/d:1"}}}, nil
}

func (shelf) Export(_ context.Context, w io.Writer, refs []string) error {
	switch {
	case slices.Contains(refs, "missing"):
		return errdefs.ErrNotFound
	case slices.Contains(refs, "torn"):
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
		return errors.Join(err, errors.New("the disk is gone"))
	}
	_, err := io.WriteString(w, strings.Join(refs, ","))
	return err
}

func (shelf) RemoveImage(_ context.Context, ref string) error {
	if ref == "stuck" {
		return errors.New("removing stuck: it is stuck")
	}
	return nil
}

func TestImagesAreListed(t *testing.T) {
	out, err := run(t, append(serveNode(t), "images", "list")...)
	want := "IMAGE     ID            SIZE   PINNED\n" +
		"a.io/b:1  aaaaaaaaaaaa  1.5MB  true\n" +
		"a.io/b:2  aaaaaaaaaaaa  1.5MB  true\n" +
		"-         bbbbbbbbbbbb  0.0MB  false\n"
	if err != nil || out != want {
		t.Errorf("got\n%s%v, want\n%s", out, err, want)
	}
}

func TestImagesAreImportedFromAFile(t *testing.T) {
	flags, file := serveNode(t), filepath.Join(t.TempDir(), "archive.tar")
	if err := os.WriteFile(file, []byte("archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, append(flags, "images", "import", file)...); err != nil || out != "sha256:c c.io/d:1\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if err := os.WriteFile(file, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, append(flags, "images", "import", file)...); err == nil || !strings.Contains(err.Error(), "rubbish") {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestImagesAreExportedWholeOrNotAtAll(t *testing.T) {
	flags, file := serveNode(t), filepath.Join(t.TempDir(), "archive.tar")
	if out, err := run(t, append(flags, "images", "export", "a", "b&c")...); err != nil || out != "a,b&c" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := run(t, append(flags, "images", "export", "-o", file, "a")...); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "a" {
		t.Errorf("file %q, %v", b, err)
	}
	for _, ref := range []string{"missing", "torn"} {
		if _, err := run(t, append(flags, "images", "export", "-o", file+"2", ref)...); err == nil {
			t.Errorf("%s: no error", ref)
		}
	}
	if found, err := filepath.Glob(file + "2*"); err != nil || len(found) != 0 {
		t.Errorf("left %v, %v", found, err)
	}
}

func TestImagesAreRemoved(t *testing.T) {
	flags := serveNode(t)
	if out, err := run(t, append(flags, "images", "rm", "a", "b")...); err != nil || out != "" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := run(t, append(flags, "images", "rm", "a", "stuck")...); err == nil || !strings.Contains(err.Error(), "it is stuck") {
		t.Errorf("got %v", err)
	}
}
