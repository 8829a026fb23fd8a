#!/bin/bash
# Runs the README's two commands as a stranger would, on a fresh Debian with git,
# make and Go and nothing else, and shows what they left behind:
#
#     minbase.sh [COMMAND...]        default: "make demo" "make test"
#
# The Debian is a debootstrap minbase in mount, network, PID, UTS, IPC and cgroup
# namespaces of its own. Its only way out is the program uplink, which lists the
# hosts it was asked for: no image registry is among them. After each command
# links, addresses, routes, namespaces, mounts, nft rules, sysctls, cgroup
# directories, listening sockets, processes and files in volatile places are
# compared with those before. Exit status: 0 if every command ended well and
# left no difference.
#
# What is committed is what runs: the checkout's HEAD is cloned. Packages come
# from where the host's apt gets them, modules from the host's module cache or
# GOPROXY. Needs root and: debootstrap, git, go, ip, nft, ss, sysctl, util-linux.
# SUITE=trixie takes another Debian; KEEP=1 keeps the directory with the result.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
suite=${SUITE:-bookworm}
gate=127.0.0.1:3128

# say prints a line of our own, so that it is told from the commands' output.
say() { echo "minbase: $*"; }

# cgroup_mounts prints mount point, root, type and options of each cgroup
# hierarchy; of mounts on top of each other the last.
cgroup_mounts() {
	awk '{ for (i = 7; $i != "-"; i++); if ($(i+1) ~ /^cgroup2?$/) at[$5] = $5 " " $4 " " $(i+1) " " $(i+3) }
		END { for (point in at) print at[point] }' /proc/self/mountinfo | sort
}

# --- inside: process 1 of the namespaces -----------------------------------

# inside WORK turns the namespaces into the fresh machine and waits.
inside() {
	local root=$1/root
	mount --bind "$root" "$root"
	mount -t proc proc "$root/proc"
	mount -t sysfs sysfs "$root/sys"
	mount -t tmpfs -o mode=755 tmpfs "$root/run"
	inside_cgroups "$root/sys/fs/cgroup"
	inside_devices "$root/dev"
	inside_bind "$(go env GOROOT)" "$root/usr/local/go"
	inside_bind "$(go env GOMODCACHE)/cache/download" "$root/mnt/goproxy"
	inside_bind "$repo" "$root/mnt/crib"
	mkdir -p "$root/mnt/way" "$root/mnt/old"
	mount --bind "$1/way" "$root/mnt/way"
	ip link set lo up
	hostname minbase
	cd "$root"
	pivot_root . mnt/old
	# A new shell, so that nothing holds the old root. It collects orphans while it reads.
	exec /bin/bash -c '
		cd /; umount --lazy /mnt/old; rmdir /mnt/old; mount --make-rshared /
		/mnt/way/uplink join /mnt/way/socket '$gate' &
		exec 3<>/mnt/way/hold
		echo ready >/mnt/way/ready
		while :; do read -r -u 3 _; done'
}

# inside_bind SOURCE TARGET shows a directory of the host, read-only.
inside_bind() {
	mkdir -p "$2"
	[ -d "$1" ] || return 0
	mount --bind "$1" "$2"
	mount -o remount,bind,ro "$2"
}

# inside_cgroups DIR mounts each of the host's hierarchies, of which only our part is seen.
inside_cgroups() {
	local point root kind options name
	while read -r point root kind options; do
		name=${point#/sys/fs/cgroup}
		[ -z "$name" ] || mountpoint -q "$1" || mount -t tmpfs -o mode=755 tmpfs "$1"
		mkdir -p "$1$name"
		if [ "$kind" = cgroup2 ]; then
			mount -t cgroup2 cgroup2 "$1$name"
		else
			mount -t cgroup -o "$(tr , '\n' <<<"$options" | grep -vxE 'rw|xattr|release_agent=.*' | paste -sd,)" cgroup "$1$name"
		fi
	done < <(cgroup_mounts)
}

# inside_devices DIR makes the devices that a container has, and terminals of its own.
inside_devices() {
	local name major minor
	mount -t tmpfs -o mode=755 tmpfs "$1"
	while read -r name major minor; do
		mknod -m 666 "$1/$name" c "$major" "$minor"
	done <<-END
		null 1 3
		zero 1 5
		full 1 7
		random 1 8
		urandom 1 9
		tty 5 0
	END
	mkdir "$1/pts" "$1/shm"
	mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$1/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$1/shm"
	ln -s pts/ptmx "$1/ptmx"
	ln -s /proc/self/fd "$1/fd"
	for name in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${name%:*}" "$1/${name#*:}"; done
}

# --- outside: the cgroup that the namespaces live in ------------------------

# make_cgroups makes a cgroup below ours in each hierarchy, into the array cgroups.
make_cgroups() {
	local point root kind options controllers path dir
	while read -r point root kind options; do
		while IFS=: read -r _ controllers path; do
			if [ "$kind" = cgroup2 ]; then [ -z "$controllers" ]; else [[ -n $controllers && ,$options, == *,$controllers,* ]]; fi || continue
			[ "$root" = / ] || path=${path#"$root"}
			dir=${point}${path%/}/crib-minbase-$$
			mkdir "$dir"
			cgroups+=("$dir")
			# A cpuset is empty at first, and takes no process then.
			for f in cpuset.cpus cpuset.mems; do
				[ "$kind" = cgroup2 ] || [ ! -e "$dir/$f" ] || cat "$dir/../$f" >"$dir/$f"
			done
		done </proc/self/cgroup
	done < <(cgroup_mounts)
}

# enter_cgroups moves the calling subshell there.
enter_cgroups() {
	local dir
	for dir in "${cgroups[@]}"; do
		[ -d "$dir/init" ] && dir=$dir/init
		echo "$BASHPID" >"$dir/cgroup.procs"
	done
}

# settle_cgroups makes room for controllers: cgroup v2 hands them on only from a
# group without processes, as the root of a real machine need not be.
settle_cgroups() {
	local dir pid controller
	for dir in "${cgroups[@]}"; do
		[ -s "$dir/cgroup.controllers" ] || continue
		mkdir "$dir/init"
		while read -r pid; do echo "$pid" >"$dir/init/cgroup.procs"; done <"$dir/cgroup.procs"
		for controller in $(cat "$dir/cgroup.controllers"); do
			echo "+$controller" >"$dir/cgroup.subtree_control" || true
		done
	done
}

# remove_cgroups also removes what a command left below; a killed process leaves its group a little later.
remove_cgroups() {
	local dir tries
	for dir in "${cgroups[@]}"; do
		for tries in {1..50}; do
			[ -d "$dir" ] || break
			find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
		done
		[ ! -d "$dir" ] || say "cannot remove $dir"
	done
}

# --- outside: the machine ----------------------------------------------------

# bootstrap makes the Debian in $work/root.
bootstrap() {
	local mirror
	mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
		awk -v suite="$suite" '$2 == suite { print $1; exit }')
	say "debootstrap $suite from ${mirror:-the default mirror}"
	unshare --mount debootstrap --variant=minbase --include=git,make,ca-certificates \
		"$suite" "$work/root" ${mirror:+"$mirror"} >"$work/debootstrap.log" 2>&1 ||
		{ tail -20 "$work/debootstrap.log" >&2 && return 1; }
	if [ "$suite" = "$(. /etc/os-release && echo "$VERSION_CODENAME")" ]; then
		rm -rf "$work/root/etc/apt"
		cp -a /etc/apt "$work/root/etc/apt"
	fi
	printf 'Acquire::%s::Proxy "http://%s";\n' http "$gate" https "$gate" >"$work/root/etc/apt/apt.conf.d/zz-uplink"
	# It trusts whom the host trusts: the way to the module proxy may have a CA of its own.
	cp -L /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/"
	echo "127.0.0.1 localhost minbase" >"$work/root/etc/hosts"
}

# start makes the namespaces and sets init to their first process.
start() {
	mkdir "$work/way"
	mkfifo "$work/way/hold" "$work/way/ready"
	(cd "$repo" && CGO_ENABLED=0 go build -buildvcs=false -o "$work/way/uplink" ./integration/uplink)
	"$work/way/uplink" serve "$work/way/socket" >"$work/hosts" &
	uplink=$!
	make_cgroups
	(
		enter_cgroups
		exec unshare --fork --kill-child --pid --mount --net --uts --ipc --cgroup "$0" --inside "$work" 2>"$work/inside.log"
	) &
	holder=$!
	# Both ends open at once, so that a machine that did not come up does not block us.
	exec 4<>"$work/way/ready"
	until read -r -t 1 -u 4 _; do
		kill -0 "$holder" || { say "the namespaces did not come up:" && cat "$work/inside.log" && return 1; }
	done
	init=$(pgrep -P "$holder")
	settle_cgroups
}

# visit COMMAND runs a shell command on the machine as root with a clean environment.
visit() {
	(
		enter_cgroups
		exec nsenter --target "$init" --mount --net --pid --uts --ipc --cgroup --root --wd \
			/usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb \
			PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			GOPROXY="file:///mnt/goproxy,$(go env GOPROXY)" GOSUMDB="$(go env GOSUMDB)" \
			GONOSUMDB="$(go env GONOSUMDB)" GOTOOLCHAIN=local https_proxy="http://$gate" \
			no_proxy=localhost,127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7,fe80::/10 \
			/bin/bash -c "$1" </dev/null
	)
}

# snapshot prints what is there, a line each, sorted. It looks from outside, so
# that the machine needs no programs for it. The sysctls of a link go with the link.
snapshot() {
	local there=/proc/$init/root
	local net=(nsenter --target "$init" --net --uts --ipc)
	{
		"${net[@]}" ip -o link | sed 's/^/link /'
		"${net[@]}" ip -o addr | sed 's/^/address /'
		"${net[@]}" ip route show table all | sed 's/^/route /'
		"${net[@]}" ip -6 route show table all | sed 's/^/route /'
		"${net[@]}" ip rule | sed 's/^/rule /'
		"${net[@]}" nft -s list ruleset | sed 's/^/nft /'
		"${net[@]}" ss -Hlntu | awk '{ print "socket", $1, $5 }'
		"${net[@]}" ss -Hlx | awk '{ print "socket", $1, $5 }'
		"${net[@]}" sysctl -a --pattern '^(net|kernel)\.' 2>/dev/null |
			grep -vE '^(kernel\.(random|ns_last_pid|pty\.nr|tainted)|net\.netfilter\.nf_conntrack_count)' |
			grep -E '^(kernel|net\.core|net\.[a-z0-9]+\.(conf|neigh)\.(all|default|lo)\.|net\.[a-z0-9]+\.[a-z0-9_-]+ )' | sed 's/^/sysctl /'
		find "$there"/proc/[0-9]*/ns -type l -printf 'namespace %l\n' 2>/dev/null | sort -u
		cut -d' ' -f4- "/proc/$init/mountinfo" | sed 's/^/mount /'
		find "$there/sys/fs/cgroup" -type d -printf 'cgroup %P\n'
		for process in "$there"/proc/[0-9]*; do
			echo "process ${process##*/} $(tr '\0\n' '  ' <"$process/cmdline" | cut -c1-100)"
		done
		find "$there"/{run,tmp,var/tmp,dev,etc/crib,etc/cni,opt,var/lib/crib,var/log/pods} -printf 'file %p\n' 2>/dev/null | sed "s,$there,,"
		visit 'cd /root/crib && git status --porcelain' | sed 's/^/checkout /'
	} | sort
}

# cleanup ends the machine: with its process 1 the kernel kills all others, and
# the holder ends when they are gone. Mounts and links go with the namespaces.
cleanup() {
	[ -z "${init:-}" ] || kill -KILL "$init" || true
	[ -z "${holder:-}" ] || wait "$holder" 2>/dev/null || true
	[ -z "${uplink:-}" ] || { kill -KILL "$uplink" && wait "$uplink" 2>/dev/null; } || true
	remove_cgroups
	if [ -n "${KEEP:-}" ]; then say "kept: $work"; else rm -rf --one-file-system "$work"; fi
}

# try COMMAND runs it and compares before and after.
try() {
	local begin=$SECONDS status=0
	snapshot >"$work/before"
	say "\$ $1"
	visit "cd /root/crib && $1" || status=$?
	say "status $status after $((SECONDS - begin)) s"
	snapshot >"$work/after"
	if ! diff --unchanged-line-format= --old-line-format='gone: %L' --new-line-format='left: %L' "$work/before" "$work/after"; then
		say "differs from before: see above"
		return 1
	fi
	say "links, addresses, namespaces, mounts, nft rules, sysctls, cgroups, sockets, processes: as before"
	return "$status"
}

main() {
	local program failed=0
	[ "$(id -u)" -eq 0 ] || { say "needs root" >&2 && exit 2; }
	for program in debootstrap git go ip nft ss sysctl unshare nsenter pivot_root pgrep; do
		command -v "$program" >/dev/null || { say "needs $program" >&2 && exit 2; }
	done
	cgroups=()
	work=$(mktemp -d)
	trap cleanup EXIT
	bootstrap
	start
	visit 'git -c safe.directory="*" clone -q file:///mnt/crib /root/crib'
	for command in "$@"; do try "$command" || failed=1; done
	say "hosts that were asked for something: $(sort "$work/hosts" | paste -sd' ' | grep . || echo none)"
	exit $failed
}

case ${1:-} in
--inside) inside "$2" ;;
"") main "make demo" "make test" ;;
*) main "$@" ;;
esac
