#!/bin/bash
# Installs, upgrades, removes and purges the Debian package of crib, with pods, and
# prints a line for each check:
#
#     DISPOSABLE=1 deb.sh OLD.deb NEW.deb IMAGE.tar
#
# It is for a virtual machine that is thrown away afterwards: a Debian with systemd,
# systemd-networkd and crictl, on whose kernel overlay, bridge, br_netfilter and
# nf_tables are modules that nothing uses. IMAGE.tar holds one image with busybox.
set -uo pipefail
[ "${DISPOSABLE:-}" = 1 ] || { echo "deb.sh: it changes the machine; DISPOSABLE=1 says that this one is for that" >&2; exit 2; }
old=${1:?usage: deb.sh OLD.deb NEW.deb IMAGE.tar} new=${2:?} image=${3:?}
export CONTAINER_RUNTIME_ENDPOINT=unix:///run/crib/crib.sock DEBIAN_FRONTEND=noninteractive
PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d) failed=0

# check CLAIM COMMAND... runs a command quietly and tells whether the claim holds.
check() {
	local claim=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		echo "pass  $claim"
	else
		echo "FAIL  $claim"
		sed 's/^/      /' "$work/out"
		failed=1
	fi
}

# snapshot FILE writes what the package and its pods could leave on the machine.
snapshot() {
	{
		ip -o link | sed 's/^[0-9]*: //; s/ mtu .*//'
		ip -o addr | awk '{print $2, $4}'
		ip route
		ip netns
		[ ! -d /sys/module/nf_tables ] || nft list tables # which would load it
		# The kubelet removes the slices that it names; sysctl -a mounts binfmt_misc.
		awk '{print $5}' /proc/self/mountinfo | grep -v binfmt_misc
		find /sys/fs/cgroup -type d | grep -vE 'system.slice|kubepods|binfmt_misc'
		find /etc /usr /var/lib /run -xdev \( -path /run/systemd -o -path /run/udev -o -path /var/lib/dpkg -o -path /run/log -o -path /run/crun -o -path "*/NetworkManager" \) -prune -o -print
		sysctl -a 2>/dev/null | grep -E '^net\.ipv[46]\.(ip_forward|conf\.(all|default)\.(forwarding|rp_filter))'
		ps -eo comm= | grep -E '^(crib|runc|sleep)'
	} | sort >"$1"
}

# macs prints our links and their addresses.
macs() { for l in /sys/class/net/crib*; do echo "${l##*/} $(cat "$l/address")"; done; }
addresses() { ip -o addr show dev crib0 | awk '{print $2, $4}'; ip route show dev crib0; }
pid() { crictl inspect -o json "$1" | jq .info.pid; }
pod_ip() { crictl inspectp -o json "$1" | jq -r .status.network.ip; }
state() { for c in "${containers[@]}"; do echo "$c $(pid "$c") $(crictl inspect -o json "$c" | jq -r '.status.state, .status.startedAt')"; done
	for p in "${pods[@]}"; do echo "$p $(pod_ip "$p")"; done; }

# reachable says whether the pods answer, from the node and from each other.
reachable() {
	local p
	for p in "${pods[@]}"; do
		ping -c1 -W10 "$(pod_ip "$p")" && crictl exec -s "${containers[0]}" ping -c1 -W10 "$(pod_ip "$p")" || return 1
	done
}
same() { diff "$work/$1" <("${@:2}"); }

# run NAME starts a pod with one container.
run() {
	local pod
	cat >"$work/pod.json" <<-END
	{"metadata": {"name": "$1", "namespace": "default", "uid": "$1", "attempt": 0}, "log_directory": "/var/log/pods/$1",
	 "linux": {"cgroup_parent": "kubepods-besteffort-pod$1.slice"}}
	END
	cat >"$work/container.json" <<-END
	{"metadata": {"name": "sleep"}, "image": {"image": "$ref"}, "command": ["/bin/busybox", "sleep", "100000"], "log_path": "sleep.log", "linux": {}}
	END
	pod=$(crictl -t 120s runp "$work/pod.json") || return
	pods+=("$pod")
	containers+=("$(crictl -t 120s create "$pod" "$work/container.json" "$work/pod.json")")
	crictl -t 120s start "${containers[-1]}"
}
pods=() containers=()

mkdir -p /var/log/pods
# Something that would take our links, as catch-all files of nodes do.
mkdir -p /etc/systemd/network
printf '[Match]\nKind=bridge veth\n[Network]\nLinkLocalAddressing=no\nAddress=192.0.2.77/32\n' >/etc/systemd/network/50-all.network
systemctl restart systemd-networkd
sysctl -qw net.ipv4.ip_forward=0
modules=$(lsmod | awk '{print $1}' | grep -cxE 'overlay|bridge|br_netfilter|veth|nf_tables|nft_masq')
check "no module of ours is loaded before" [ "$modules" = 0 ]
snapshot "$work/before"

check "install" dpkg -i "$old"
check "the unit runs and is enabled" eval 'systemctl is-active crib && systemctl is-enabled crib'
mkdir -p /etc/crib/conf.d
printf 'version = 1\n[network]\ncidrs = ["10.99.0.0/24"]\n' >/etc/crib/conf.d/10-range.toml
check "restart with a range" systemctl restart crib
for m in overlay bridge br_netfilter veth nf_tables nf_conntrack nft_chain_nat nft_masq; do
	check "crib loaded $m" test -d "/sys/module/$m"
done
check "import of an image" crib images import "$image"
ref=$(crictl images -o json | jq -r '.images[0].repoTags[0]')
check "a pod" run one
check "another" run two
check "pods answer" reachable
crictl info -o json 2>/dev/null | jq -c '.status.conditions' 2>/dev/null

macs >"$work/macs"; addresses >"$work/addresses"; state >"$work/state"
check "udev has a file of ours for the bridge" eval 'udevadm test-builtin net_setup_link /sys/class/net/crib0 2>&1 | grep 00-crib.link'
check "udevadm trigger" eval 'udevadm trigger --action=add --subsystem-match=net && udevadm settle'
check "no link address has changed" same macs macs
check "networkd calls our links unmanaged" eval 'networkctl --no-legend | tee /dev/stderr | grep crib | awk "\$NF != \"unmanaged\" {exit 1}"'
check "networkctl reload" networkctl reload
check "restart of systemd-networkd" systemctl restart systemd-networkd
check "addresses and routes are the same" same addresses addresses
if systemctl -q is-active NetworkManager; then
	check "NetworkManager calls our links unmanaged" eval 'nmcli -t -f DEVICE,STATE device | tee /dev/stderr | grep crib | awk -F: "\$2 != \"unmanaged\" {exit 1}"'
	check "restart of NetworkManager" systemctl restart NetworkManager
	check "addresses and routes are the same" same addresses addresses
fi
strict_all=$(cat /proc/sys/net/ipv4/conf/all/rp_filter) strict_default=$(cat /proc/sys/net/ipv4/conf/default/rp_filter)
printf 'net.ipv4.ip_forward = 0\nnet.ipv4.conf.*.rp_filter = 1\n' >/etc/sysctl.d/50-strict.conf
sysctl --system >/dev/null 2>&1
check "sysctl --system leaves forwarding on, at once" grep -x 1 /proc/sys/net/ipv4/ip_forward
check "and rp_filter loose" grep -x 2 /proc/sys/net/ipv4/conf/crib0/rp_filter
/usr/lib/systemd/systemd-sysctl
check "so does systemd-sysctl" eval 'grep -x 1 /proc/sys/net/ipv4/ip_forward && grep -x 2 /proc/sys/net/ipv4/conf/crib0/rp_filter'
rm /etc/sysctl.d/50-strict.conf
sysctl -qw net.ipv4.conf.all.rp_filter="$strict_all" net.ipv4.conf.default.rp_filter="$strict_default"
check "pods answer" reachable

daemon=$(systemctl show -p MainPID --value crib)
check "upgrade" dpkg -i "$new"
check "it is another daemon" [ "$daemon" != "$(systemctl show -p MainPID --value crib)" ]
crib --version
check "same containers, processes and IPs" same state state
check "pods answer" reachable
check "a third pod" run three

check "remove" dpkg -r crib
check "no process is left" eval '! ps -eo comm=,args= | grep -E "^(crib|sleep 100000|busybox)"'
check "no link, namespace, table is left" eval '! { ip link; ip netns; nft list tables; } | grep crib'
check "images stay until the purge" test -d /var/lib/crib/engine
check "purge" dpkg -P crib
rm -rf /var/log/pods/{one,two,three}
snapshot "$work/after"
check "the machine is as it was" diff "$work/before" "$work/after"
rm -rf "$work" /etc/systemd/network/50-all.network
exit $failed
