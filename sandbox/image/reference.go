package image

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// ErrRegistryUnavailable is the class of errors of a registry that cannot be
// reached or does not go on. The text of such an error begins with its text and
// ": ", by which the kubelet knows it.
var ErrRegistryUnavailable = errors.New("RegistryUnavailable")

// Normalize returns the one spelling of a reference: with the registry's host,
// and a tag or a digest. A tag beside a digest is dropped, the digest says all.
// It fails with errdefs.ErrInvalidArgument.
func Normalize(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("reading image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	return named.String(), nil
}

// ParseID returns the id that ref is, "sha256:" and 64 digits; ref may lack the
// "sha256:". ok says whether ref is an id at all.
func ParseID(ref string) (id string, ok bool) {
	d := digest.NewDigestFromEncoded(digest.SHA256, strings.TrimPrefix(ref, "sha256:"))
	if d.Validate() != nil {
		return "", false
	}
	return d.String(), true
}

// ByDigest returns name@digest for a normalised reference.
func ByDigest(ref string, manifest digest.Digest) (string, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", fmt.Errorf("reading image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	return reference.TrimNamed(named).Name() + "@" + manifest.String(), nil
}

// Kind says what a name of an image is: a tag, a digest reference, or with both
// false nothing that is shown to people.
func Kind(name string) (tag, byDigest bool) {
	if _, ok := ParseID(name); ok {
		return false, false
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return false, false
	}
	if _, ok := named.(reference.Digested); ok {
		return false, true
	}
	_, tag = named.(reference.Tagged)
	return tag, false
}
