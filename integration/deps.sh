#!/bin/bash
# Installs the Debian packages that the demo or the tests need, and only those
# whose program is missing:  deps.sh demo | test
set -euo pipefail
purpose=${1:?usage: deps.sh demo | test}

missing=() reasons=()

# need WHAT PACKAGE REASON: a program in PATH, or a file with its whole name.
need() {
	case $1 in
	/*) [ -e "$1" ] && return ;;
	*) command -v "$1" >/dev/null && return ;;
	esac
	missing+=("$2")
	reasons+=("  $2: $3")
}

PATH=$PATH:/usr/sbin:/sbin
# A busybox with libraries will not do, and the two packages exclude each other.
if command -v busybox >/dev/null && ldd "$(command -v busybox)" >/dev/null 2>&1; then
	missing+=(busybox-static)
	reasons+=("  busybox-static: in the place of busybox, which needs libraries that an image has not")
fi
need runc runc "runs containers, and the init of pods that share a PID namespace"
need busybox busybox-static "the image of the demo and the tests is made of it, on the spot"
case $purpose in
demo) ;;
test)
	need nft nftables "tests read the kernel's rules in the operator's language"
	need /etc/protocols netbase "nft shows protocols by the names in it"
	need ip iproute2 "tests read links, addresses and routes in the operator's language"
	need gcc gcc "go test -race and runc need a C compiler"
	need /usr/include/stdio.h libc6-dev "go test -race and runc need the C library's headers"
	need pkg-config pkg-config "runc 1.5 is built, for what Debian's cannot do"
	need /usr/include/seccomp.h libseccomp-dev "runc 1.5 is built with it"
	;;
*) echo "deps.sh: unknown purpose $purpose: demo or test" >&2 && exit 2 ;;
esac

[ ${#missing[@]} -eq 0 ] && exit
echo "missing Debian packages:"
printf '%s\n' "${reasons[@]}"
if ! command -v apt-get >/dev/null; then
	echo "deps.sh: this is not a Debian: install what has these programs, then try again" >&2 && exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "deps.sh: as root: apt-get install --no-install-recommends ${missing[*]}" >&2 && exit 1
fi

# quietly COMMAND... shows a command's output only when it fails.
quietly() {
	local output
	output=$("$@" 2>&1 </dev/null) || { echo "$output" >&2 && return 1; }
}

export DEBIAN_FRONTEND=noninteractive
install=(apt-get install -qq --no-install-recommends "${missing[@]}")
# Lists that are missing or too old to name a package that is still there are fetched once.
if ! apt-get install -qq --no-install-recommends --download-only "${missing[@]}" >/dev/null 2>&1 </dev/null; then
	quietly apt-get update -qq
fi
quietly "${install[@]}"
echo "installed ${missing[*]}"
