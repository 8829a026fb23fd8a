package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox/image"
)

// Images are the images of a node; sandbox/engine has them. Errors are of
// errdefs.ErrNotFound and errdefs.ErrInvalidArgument where they are the caller's.
type Images interface {
	Images(ctx context.Context) ([]image.Image, error)
	// Import takes the images of an archive.
	Import(ctx context.Context, r io.Reader) ([]image.Image, error)
	// Export writes an archive; nothing, if an image is missing.
	Export(ctx context.Context, w io.Writer, refs []string) error
	// RemoveImage is idempotent.
	RemoveImage(ctx context.Context, ref string) error
}

// ImageSource is a [Source] that has images; the API has no images without it.
type ImageSource interface {
	Source
	ImageStore() Images
}

// handleImages adds the calls for images.
func handleImages(mux *http.ServeMux, images Images) {
	mux.HandleFunc("GET /v1/images", func(w http.ResponseWriter, r *http.Request) {
		list(w, r, images.Images)
	})
	mux.HandleFunc("POST /v1/images/import", func(w http.ResponseWriter, r *http.Request) {
		list(w, r, func(ctx context.Context) ([]image.Image, error) { return images.Import(ctx, r.Body) })
	})
	mux.HandleFunc("GET /v1/images/export", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-tar")
		out := &counter{Writer: w}
		err := images.Export(r.Context(), out, r.URL.Query()["ref"])
		switch {
		case err == nil:
		case out.n == 0:
			refuse(w, err)
		default:
			panic(http.ErrAbortHandler) // the client must not take half an archive for all of it
		}
	})
	mux.HandleFunc("DELETE /v1/images", func(w http.ResponseWriter, r *http.Request) {
		var errs []error
		for _, ref := range r.URL.Query()["ref"] {
			errs = append(errs, images.RemoveImage(r.Context(), ref))
		}
		if err := errors.Join(errs...); err != nil {
			refuse(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func list(w http.ResponseWriter, r *http.Request, ask func(context.Context) ([]image.Image, error)) {
	images, err := ask(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, append([]image.Image{}, images...)) // in JSON, lists are lists and never null
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errdefs.IsNotFound(err):
		status = http.StatusNotFound
	case errdefs.IsInvalidArgument(err):
		status = http.StatusBadRequest
	}
	http.Error(w, err.Error(), status)
}

// counter counts what is written.
type counter struct {
	io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// Images returns all images.
func (c Client) Images(ctx context.Context) (images []image.Image, err error) {
	return images, c.get(ctx, "/v1/images", &images)
}

// Import sends an archive and returns its images.
func (c Client) Import(ctx context.Context, archive io.Reader) (images []image.Image, err error) {
	return images, c.do(ctx, call{http.MethodPost, "/v1/images/import", archive}, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&images)
	})
}

// Export writes an archive of images.
func (c Client) Export(ctx context.Context, w io.Writer, refs []string) error {
	path := "/v1/images/export?" + url.Values{"ref": refs}.Encode()
	return c.do(ctx, call{http.MethodGet, path, nil}, func(body io.Reader) error {
		_, err := io.Copy(w, body)
		return err
	})
}

// RemoveImages removes images with all their references. Unknown ones are fine.
func (c Client) RemoveImages(ctx context.Context, refs []string) error {
	path := "/v1/images?" + url.Values{"ref": refs}.Encode()
	return c.do(ctx, call{http.MethodDelete, path, nil}, func(io.Reader) error { return nil })
}
