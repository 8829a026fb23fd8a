package cri

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/image"
)

// PullImage fetches an image and returns its id. The kubelet sets no deadline.
func (s *Service) PullImage(ctx context.Context, req *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	ref, err := refFrom(req.GetImage())
	if err != nil {
		return nil, err
	}
	auth, err := authFrom(req.GetAuth())
	if err != nil {
		return nil, err
	}
	pulled, err := s.cfg.Images.Pull(ctx, ref, auth)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("pull image %q: %w", ref, ctx.Err()) // whatever it broke on the way
	}
	if err != nil {
		return nil, err
	}
	return &runtime.PullImageResponse{ImageRef: pulled.ID}, nil
}

// ImageStatus tells of an image; one that the node does not have is nil, not an error.
func (s *Service) ImageStatus(ctx context.Context, req *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	ref, err := refFrom(req.GetImage())
	if err != nil {
		return nil, err
	}
	found, err := s.cfg.Images.Image(ctx, ref)
	if errdefs.IsNotFound(err) {
		return &runtime.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &runtime.ImageStatusResponse{Image: imageOf(found)}
	if req.GetVerbose() {
		resp.Info, err = imageInfoOf(found)
	}
	return resp, err
}

// ListImages lists the images of the node, or the one that the filter names.
func (s *Service) ListImages(ctx context.Context, req *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	resp := &runtime.ListImagesResponse{}
	if ref := req.GetFilter().GetImage().GetImage(); ref != "" {
		found, err := s.cfg.Images.Image(ctx, ref)
		if errdefs.IsNotFound(err) {
			return resp, nil
		}
		resp.Images = []*runtime.Image{imageOf(found)}
		return resp, err
	}
	images, err := s.cfg.Images.Images(ctx)
	for _, i := range images {
		resp.Images = append(resp.Images, imageOf(i))
	}
	return resp, err
}

// RemoveImage removes an image with all of its references. Unknown ones are fine.
func (s *Service) RemoveImage(ctx context.Context, req *runtime.RemoveImageRequest) (*runtime.RemoveImageResponse, error) {
	ref, err := refFrom(req.GetImage())
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Images.RemoveImage(ctx, ref); err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	return &runtime.RemoveImageResponse{}, nil
}

// ImageFsInfo tells of the filesystem of images, which is that of containers, too.
func (s *Service) ImageFsInfo(ctx context.Context, _ *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	usage, err := s.cfg.Images.ImageUsage(ctx)
	if err != nil {
		return nil, err
	}
	filesystem := &runtime.FilesystemUsage{
		Timestamp:  nanos(usage.At),
		FsId:       filesystemOf(usage.Mountpoint),
		UsedBytes:  number(usage.UsedBytes),
		InodesUsed: number(usage.InodesUsed),
	}
	list := []*runtime.FilesystemUsage{filesystem}
	return &runtime.ImageFsInfoResponse{ImageFilesystems: list, ContainerFilesystems: list}, nil
}

func refFrom(spec *runtime.ImageSpec) (string, error) {
	if spec.GetImage() == "" {
		return "", invalid("image.image is empty")
	}
	return spec.Image, nil
}

// authFrom translates what a registry is told. Like other clients of the file
// format that it comes from, it takes user and password out of auth where they
// do not stand by themselves.
func authFrom(a *runtime.AuthConfig) (image.Auth, error) {
	auth := image.Auth{
		Username:      a.GetUsername(),
		Password:      a.GetPassword(),
		IdentityToken: a.GetIdentityToken(),
		RegistryToken: a.GetRegistryToken(),
		Server:        a.GetServerAddress(),
	}
	if a.GetAuth() == "" || auth.Username != "" || auth.IdentityToken != "" || auth.RegistryToken != "" {
		return auth, nil
	}
	text, err := base64.StdEncoding.DecodeString(a.GetAuth())
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok {
		return auth, invalid("auth.auth is not user:password in base64")
	}
	auth.Username, auth.Password = user, strings.Trim(password, "\x00")
	return auth, nil
}

func imageOf(i image.Image) *runtime.Image {
	img := &runtime.Image{
		Id:          i.ID,
		RepoTags:    i.Tags,
		RepoDigests: i.Digests,
		Size:        i.Size,
		Pinned:      i.Pinned,
	}
	user, _, _ := strings.Cut(i.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		img.Uid = &runtime.Int64Value{Value: uid}
	} else {
		img.Username = user
	}
	return img
}

// imageInfoOf is what `crictl inspecti` shows beside the status, under the names
// of containerd and of the image's own format.
func imageInfoOf(i image.Image) (map[string]string, error) {
	volumes := map[string]struct{}{}
	for _, path := range i.Config.Volumes {
		volumes[path] = struct{}{}
	}
	b, err := json.Marshal(map[string]any{"imageSpec": map[string]any{"config": map[string]any{
		"User":       i.Config.User,
		"Env":        i.Config.Env,
		"Entrypoint": i.Config.Entrypoint,
		"Cmd":        i.Config.Cmd,
		"WorkingDir": i.Config.WorkDir,
		"Volumes":    volumes,
		"StopSignal": i.Config.StopSignal,
	}}})
	return map[string]string{"info": string(b)}, err
}
