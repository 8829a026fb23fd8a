package cri

import (
	"fmt"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network/netns"
)

// usersFrom translates a user namespace; zero for the host's. KEP-127 has one map of
// users and one of groups.
func usersFrom(field string, u *runtime.UserNamespace) (users netns.Users, err error) {
	switch {
	case u == nil || u.Mode == runtime.NamespaceMode_NODE && len(u.Uids)+len(u.Gids) == 0:
		return users, nil
	case u.Mode != runtime.NamespaceMode_POD:
		return users, invalid("%s: mode %s with maps; only POD has a user namespace", field, u.Mode)
	}
	return mapsFrom(field, [2]string{"uids", "gids"}, u.Uids, u.Gids)
}

// mapsFrom wants one map of users and one of groups.
func mapsFrom(field string, names [2]string, uids, gids []*runtime.IDMapping) (users netns.Users, err error) {
	if users.UIDs, err = idMapFrom(field+"."+names[0], uids); err != nil {
		return users, err
	}
	users.GIDs, err = idMapFrom(field+"."+names[1], gids)
	return users, err
}

func idMapFrom(field string, maps []*runtime.IDMapping) (m netns.IDMap, err error) {
	if len(maps) != 1 || maps[0] == nil {
		return m, invalid("%s has %d maps, and exactly one is possible", field, len(maps))
	}
	m = netns.IDMap{Inside: maps[0].ContainerId, Host: maps[0].HostId, Size: maps[0].Length}
	if err := m.Validate(); err != nil {
		return m, fmt.Errorf("%s: %w", field, err)
	}
	return m, nil
}

// mountUsersFrom translates the maps of a mount; both or none.
func mountUsersFrom(field string, m *runtime.Mount) (netns.Users, error) {
	if len(m.GetUidMappings())+len(m.GetGidMappings()) == 0 {
		return netns.Users{}, nil
	}
	return mapsFrom(field, [2]string{"uidMappings", "gidMappings"}, m.GetUidMappings(), m.GetGidMappings())
}

// userOptionsOf is what a status says of a user namespace.
func userOptionsOf(users netns.Users) *runtime.UserNamespace {
	if users.IsZero() {
		return nil
	}
	return &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD, Uids: idMapsOf(users.UIDs), Gids: idMapsOf(users.GIDs)}
}

func idMapsOf(m netns.IDMap) []*runtime.IDMapping {
	return []*runtime.IDMapping{{ContainerId: m.Inside, HostId: m.Host, Length: m.Size}}
}
