package oci

import (
	"errors"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// injectCDI adds what the node's CDI specifications say of the devices that the
// request names in its field or, as older device plugins do, in annotations.
func injectCDI(in Input, s *specs.Spec) error {
	devices, err := cdiDevices(in)
	if err != nil || len(devices) == 0 {
		return err
	}
	dirs := in.CDIDirs
	if len(dirs) == 0 {
		dirs = cdi.DefaultSpecDirs
	}
	// Read anew each time: such containers are few, and a device plugin may have
	// written its file a moment ago.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return unavailable("reading CDI specifications in %v: %v", dirs, err)
	}
	if _, err := cache.InjectDevices(s, devices...); err != nil {
		broken := slices.Collect(maps.Values(cache.GetErrors()))
		return unavailable("adding CDI devices from %v: %v", dirs, errors.Join(err, errors.Join(slices.Concat(broken...)...)))
	}
	return nil
}

// checkCDI refuses annotations that look like CDI's and are not.
func checkCDI(in Input, _ *specs.Spec) error {
	_, err := cdiDevices(in)
	return err
}

// cdiDevices returns the names, each once.
func cdiDevices(in Input) ([]string, error) {
	_, annotated, err := cdi.ParseAnnotations(in.Container.Spec.Annotations)
	if err != nil {
		return nil, invalid("config.annotations: %v", err)
	}
	var names []string
	for _, name := range slices.Concat(in.Container.Spec.CDIDevices, annotated) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
