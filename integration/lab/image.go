package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// Image is the name of the image that [Crib.ImportImage] makes.
const Image = "crib.test/busybox:1"

// ImportImage makes an image of the machine's own busybox, which must be a static
// one, on the spot, and imports it by `crib images import`.
func (c *Crib) ImportImage(ctx context.Context) error {
	archive, err := Archive()
	if err != nil {
		return err
	}
	cmd := c.Command(ctx, "images", "import", "-")
	cmd.Stdin = bytes.NewReader(archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("crib images import: %w\n%s", err, out)
	}
	return nil
}

// Archive returns [Image] as `docker save` writes it.
func Archive() ([]byte, error) {
	layer, err := busyboxLayer()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Cmd": []string{"sh"}, "Env": []string{"PATH=/bin"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer}} {
		if err := addFile(w, tar.Header{Name: file.name, Mode: 0o644}, file.content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// busyboxLayer returns a root file system: busybox under all of its names.
func busyboxLayer() ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("the image is made of busybox (Debian has it in busybox-static): %w", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if dynamic(program) {
		return nil, fmt.Errorf("%s needs libraries, which the image has not: install a static one, Debian's busybox-static", path)
	}
	names, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"bin", "dev", "etc", "proc", "root", "sys", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := addFile(w, tar.Header{Name: "bin/busybox", Mode: 0o755}, program); err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(names)) {
		if name == "busybox" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: "bin/" + name, Linkname: "bin/busybox", Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	passwd := []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
	if err := addFile(w, tar.Header{Name: "etc/passwd", Mode: 0o644}, passwd); err != nil {
		return nil, err
	}
	return out.Bytes(), w.Close()
}

// dynamic tells whether a program wants an interpreter that loads libraries.
func dynamic(program []byte) bool {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return true // not even a program
	}
	defer func() { _ = f.Close() }()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func addFile(w *tar.Writer, header tar.Header, content []byte) error {
	header.Size = int64(len(content))
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
