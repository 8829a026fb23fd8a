package cri

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/image"
)

func TestAuthIsTakenFromWhereverItIs(t *testing.T) {
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, test := range []struct {
		auth *runtime.AuthConfig
		want image.Auth
	}{
		{nil, image.Auth{}},
		{&runtime.AuthConfig{Username: "u", Password: "p", ServerAddress: "https://index.docker.io/v1/"}, image.Auth{Username: "u", Password: "p", Server: "https://index.docker.io/v1/"}},
		{&runtime.AuthConfig{Auth: encoded("u:p:q"), ServerAddress: "host:5000"}, image.Auth{Username: "u", Password: "p:q", Server: "host:5000"}},
		{&runtime.AuthConfig{Auth: encoded("u:p"), Username: "v"}, image.Auth{Username: "v"}},
		{&runtime.AuthConfig{Auth: encoded("u:p"), IdentityToken: "t"}, image.Auth{IdentityToken: "t"}},
		{&runtime.AuthConfig{RegistryToken: "t", ServerAddress: "host:5000"}, image.Auth{RegistryToken: "t", Server: "host:5000"}},
	} {
		if got, err := authFrom(test.auth); err != nil || got != test.want {
			t.Errorf("%v: got %+v, %v", test.auth, got, err)
		}
	}
	for _, bad := range []string{"not base64", encoded("no colon")} {
		if _, err := authFrom(&runtime.AuthConfig{Auth: bad}); !errdefs.IsInvalidArgument(err) || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestUsersOfImagesAreNumbersOrNames(t *testing.T) {
	for user, want := range map[string]struct {
		uid  *runtime.Int64Value
		name string
	}{
		"":           {},
		"0":          {uid: &runtime.Int64Value{}},
		"1000:1000":  {uid: &runtime.Int64Value{Value: 1000}},
		"nobody":     {name: "nobody"},
		"nobody:100": {name: "nobody"},
	} {
		got := imageOf(image.Image{Config: image.Config{User: user}})
		if got.Uid.GetValue() != want.uid.GetValue() || (got.Uid == nil) != (want.uid == nil) || got.Username != want.name {
			t.Errorf("%q: got %v", user, got)
		}
	}
}

func TestImagesHaveOneIDEverywhere(t *testing.T) {
	i := image.Image{ID: "sha256:1234", Tags: []string{"a:1"}, Digests: []string{"a@sha256:5"}, Size: 9, Pinned: true, Config: image.Config{Cmd: []string{"sh"}}}
	s, ctx := (&world{images: []image.Image{i}}).service(t), context.Background()
	spec := &runtime.ImageSpec{Image: i.ID}
	pulled, err := s.PullImage(ctx, &runtime.PullImageRequest{Image: spec})
	if err != nil || pulled.ImageRef != i.ID {
		t.Errorf("pull: got %v, %v", pulled, err)
	}
	seen, err := s.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: spec, Verbose: true})
	if err != nil || seen.Image.Id != i.ID || seen.Image.RepoTags[0] != "a:1" || seen.Image.RepoDigests[0] != "a@sha256:5" || seen.Image.Size != 9 || !seen.Image.Pinned {
		t.Errorf("status: got %v, %v", seen, err)
	}
	var info struct {
		ImageSpec struct{ Config struct{ Cmd []string } }
	}
	if err := json.Unmarshal([]byte(seen.Info["info"]), &info); err != nil || info.ImageSpec.Config.Cmd[0] != "sh" {
		t.Errorf("info: got %+v, %v", info, err)
	}
	for _, filter := range []*runtime.ImageFilter{nil, {Image: &runtime.ImageSpec{}}, {Image: spec}} {
		if list, err := s.ListImages(ctx, &runtime.ListImagesRequest{Filter: filter}); err != nil || len(list.Images) != 1 || list.Images[0].Id != i.ID {
			t.Errorf("list with %v: got %v, %v", filter, list, err)
		}
	}
}

func TestAnImageThatIsNotThereIsNoError(t *testing.T) {
	w := &world{err: fmt.Errorf("image: %w", errdefs.ErrNotFound)}
	s, ctx, spec := w.service(t), context.Background(), &runtime.ImageSpec{Image: "none"}
	if resp, err := s.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: spec}); err != nil || resp.Image != nil {
		t.Errorf("status: got %v, %v", resp, err)
	}
	if resp, err := s.ListImages(ctx, &runtime.ListImagesRequest{Filter: &runtime.ImageFilter{Image: spec}}); err != nil || len(resp.Images) != 0 {
		t.Errorf("list: got %v, %v", resp, err)
	}
	if _, err := s.RemoveImage(ctx, &runtime.RemoveImageRequest{Image: spec}); err != nil {
		t.Errorf("remove: %v", err)
	}
	for _, err := range []error{
		second(s.ImageStatus(ctx, nil)), second(s.RemoveImage(ctx, nil)), second(s.PullImage(ctx, nil)),
	} {
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("no image at all: got %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestPullErrorsHaveTheCodesAndNamesThatKubeletsKnow(t *testing.T) {
	ended, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for _, test := range []struct {
		ctx    context.Context
		err    error
		code   codes.Code
		prefix string
	}{
		{context.Background(), fmt.Errorf("pulling a: %w", image.ErrRegistryUnavailable), codes.Unknown, "RegistryUnavailable: pulling a"},
		{context.Background(), fmt.Errorf("%w: dial", image.ErrRegistryUnavailable), codes.Unknown, "RegistryUnavailable: dial"},
		{context.Background(), fmt.Errorf("pulling a: %w", errdefs.ErrNotFound), codes.NotFound, "pulling a"},
		{ended, errors.New("connection closed"), codes.DeadlineExceeded, "pull image"},
		{ended, image.ErrRegistryUnavailable, codes.DeadlineExceeded, "pull image"},
	} {
		_, err := (&world{err: test.err}).service(t).PullImage(test.ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: "a"}})
		got := status.Convert(statusFrom(err))
		if got.Code() != test.code || !strings.HasPrefix(got.Message(), test.prefix) {
			t.Errorf("%v: got %s %q", test.err, got.Code(), got.Message())
		}
	}
}

func TestTheFilesystemOfImagesHasWhatTheKubeletDereferences(t *testing.T) {
	resp, err := (&world{}).service(t).ImageFsInfo(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]*runtime.FilesystemUsage{resp.ImageFilesystems, resp.ContainerFilesystems} {
		if len(list) != 1 || list[0].UsedBytes == nil || list[0].InodesUsed == nil || list[0].FsId.GetMountpoint() != "/images" || list[0].Timestamp == 0 {
			t.Errorf("got %v", list)
		}
	}
}
