package oci

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

// maxID is the largest user or group that OCI runtimes take.
const maxID = math.MaxInt32

const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// wanted is a user and a group, each a number or a name of the image. No group is
// the user's own.
type wanted struct{ user, group string }

// wantedUser is the request's user, else the image's, else root.
func wantedUser(asked container.User, image string) (wanted, error) {
	var w wanted
	switch {
	case asked.Name != "":
		w.user = asked.Name
	case asked.UID != nil:
		w.user = strconv.FormatInt(*asked.UID, 10)
	case asked.GID != nil:
		return w, invalid("security_context.run_as_group is %d without run_as_user or run_as_username", *asked.GID)
	default:
		w.user, w.group, _ = strings.Cut(image, ":")
		if strings.Contains(w.group, ":") {
			return w, invalid("the image's user %q is not \"user\" or \"user:group\"", image)
		}
	}
	if asked.GID != nil {
		w.group = strconv.FormatInt(*asked.GID, 10)
	}
	if w.user == "" {
		w.user = "0"
	}
	return w, nil
}

// setUser finds the user, its group and its further groups.
func setUser(in Input, s *specs.Spec) error {
	asked := in.Container.Spec.Security.User
	w, err := wantedUser(asked, in.Image.User)
	if err != nil {
		return err
	}
	entry, uid, err := findUser(in.Root, w.user)
	if err != nil {
		return err
	}
	gid, err := findGroup(in.Root, w.group, entry)
	if err != nil {
		return err
	}
	groups, err := supplementary(in.Root, asked, entry.Name)
	if err != nil {
		return err
	}
	groups = append(groups, gid)
	slices.Sort(groups)
	s.Process.User = specs.User{UID: uid, GID: gid, AdditionalGids: slices.Compact(groups)}
	return nil
}

// findUser looks a user up. A number need not be in the image; then the entry is
// zero: group root, no name.
func findUser(root, who string) (entry user.User, uid uint32, err error) {
	id, isNumber, err := number("user", who)
	if err != nil {
		return entry, 0, err
	}
	found, err := lookUp(root, passwdFile, func(b []byte) ([]user.User, error) {
		return user.ParsePasswdFilter(bytes.NewReader(b), func(u user.User) bool {
			return isNumber && u.Uid == int(id) || !isNumber && u.Name == who
		})
	})
	switch {
	case err != nil:
		return entry, 0, err
	case len(found) > 0:
		entry = found[0]
	case !isNumber:
		return entry, 0, invalid("user %q is not in %s of the image; name one that is, or a number", who, passwdFile)
	}
	if !isNumber {
		id, err = inRange("user "+who, int64(entry.Uid))
	}
	return entry, id, err
}

// findGroup looks a group up; none is the entry's.
func findGroup(root, group string, entry user.User) (uint32, error) {
	if group == "" {
		return inRange("the group of user "+entry.Name, int64(entry.Gid))
	}
	gid, isNumber, err := number("group", group)
	if err != nil || isNumber {
		return gid, err
	}
	found, err := groupsOf(root, func(g user.Group) bool { return g.Name == group })
	switch {
	case err != nil:
		return 0, err
	case len(found) == 0:
		return 0, invalid("group %q is not in %s of the image; name one that is, or a number", group, groupFile)
	}
	return found[0], nil
}

// supplementary are the groups of the request and, unless it is strict, those of
// which the image says that the user is a member.
func supplementary(root string, asked container.User, name string) ([]uint32, error) {
	var gids []uint32
	for _, g := range asked.SupplementalGroups {
		gid, err := inRange("security_context.supplemental_groups", g)
		if err != nil {
			return nil, err
		}
		gids = append(gids, gid)
	}
	if asked.StrictGroups || name == "" {
		return gids, nil
	}
	member, err := groupsOf(root, func(g user.Group) bool { return slices.Contains(g.List, name) })
	return append(gids, member...), err
}

// groupsOf returns the numbers of the image's groups that fit.
func groupsOf(root string, fits func(user.Group) bool) ([]uint32, error) {
	found, err := lookUp(root, groupFile, func(b []byte) ([]user.Group, error) {
		return user.ParseGroupFilter(bytes.NewReader(b), fits)
	})
	var gids []uint32
	for _, g := range found {
		gid, err := inRange("group "+g.Name+" of the image", int64(g.Gid))
		if err != nil {
			return nil, err
		}
		gids = append(gids, gid)
	}
	return gids, err
}

// lookUp parses a file of the image; one that is missing has no entries.
func lookUp[T any](root, name string, parse func([]byte) ([]T, error)) ([]T, error) {
	b, err := readIn(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := parse(b)
	if err != nil {
		return nil, invalid("parsing %s of the image: %v", name, err)
	}
	return found, nil
}

// number returns s as an id if it is a number.
func number(what, s string) (id uint32, isNumber bool, err error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, invalid("%s %q is out of range, 0 to %d", what, s, maxID)
	}
	id, err = inRange(what, n)
	return id, true, err
}

func inRange(what string, n int64) (uint32, error) {
	if n < 0 || n > maxID {
		return 0, invalid("%s: %d is out of range, 0 to %d", what, n, maxID)
	}
	return uint32(n), nil
}
