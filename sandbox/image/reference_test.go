package image

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestReferencesHaveOneSpelling(t *testing.T) {
	for ref, want := range map[string]string{
		"busybox":                              "docker.io/library/busybox:latest",
		"busybox:1.36":                         "docker.io/library/busybox:1.36",
		"index.docker.io/library/busybox":      "docker.io/library/busybox:latest",
		"127.0.0.1:5000/a/b":                   "127.0.0.1:5000/a/b:latest",
		"registry.k8s.io/a@sha256:" + hex64:    "registry.k8s.io/a@sha256:" + hex64,
		"registry.k8s.io/a:v1@sha256:" + hex64: "registry.k8s.io/a@sha256:" + hex64,
	} {
		if got, err := Normalize(ref); err != nil || got != want {
			t.Errorf("Normalize(%q) = %q, %v, want %q", ref, got, err, want)
		}
	}
}

func TestWhatIsNoReferenceIsRefused(t *testing.T) {
	for _, ref := range []string{"", "a.io/UPPER", "a b", "a@sha256:12", hex64, "-", "a:" + strings.Repeat("t", 129)} {
		if got, err := Normalize(ref); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Normalize(%q) = %q, %v, want invalid argument", ref, got, err)
		}
	}
}

func TestIDsAreKnownWithAndWithoutAlgorithm(t *testing.T) {
	for _, ref := range []string{hex64, "sha256:" + hex64} {
		if id, ok := ParseID(ref); !ok || id != "sha256:"+hex64 {
			t.Errorf("ParseID(%q) = %q, %v", ref, id, ok)
		}
	}
	for _, ref := range []string{"", "sha256:", hex64[1:], "busybox", "a@sha256:" + hex64, strings.ToUpper(hex64)} {
		if id, ok := ParseID(ref); ok {
			t.Errorf("ParseID(%q) = %q", ref, id)
		}
	}
}

func TestNamesAreTagsDigestsOrNeither(t *testing.T) {
	for name, want := range map[string][2]bool{
		"docker.io/library/busybox:1": {true, false},
		"a.io/b@sha256:" + hex64:      {false, true},
		"sha256:" + hex64:             {false, false},
		"docker.io/library/busybox":   {false, false},
		"Not a name":                  {false, false},
	} {
		if tag, digest := Kind(name); tag != want[0] || digest != want[1] {
			t.Errorf("Kind(%q) = %v, %v", name, tag, digest)
		}
	}
	if got, err := ByDigest("a.io/b:tag", "sha256:"+hex64); err != nil || got != "a.io/b@sha256:"+hex64 {
		t.Errorf("ByDigest() = %q, %v", got, err)
	}
}
