#!/bin/bash
# run.sh [GROUP..]: real kubelets on crib in virtual machines; a line per check:
#
#     pass GROUP/NAME (seconds) ; figures
#     fail GROUP/NAME: reason
#     not yet GROUP/NAME: reason, from the file notyet
#
# Groups, in the order in which they cost least: standalone cluster stats restarts
# power. cluster makes two nodes afresh; stats, restarts and power use those that it
# left, and make them if there are none. RUNTIME=containerd runs the same on the
# reference. ONLY=REGEXP takes single checks, KEEP=1 leaves the machines running.
# CUTS is how often the power is cut (10). What a check printed is kept in WORK.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
. "$here/cluster.sh"

prepare() {
	local file
	case $RUNTIME in crib | containerd) ;; *) die "RUNTIME=$RUNTIME: crib or containerd" ;; esac
	for file in kubelet crictl runc kube-apiserver kube-proxy kubectl; do
		[ -x "$VMSHARE/bin/$file" ] || die "no $file in $VMSHARE/bin: see $NODES/README.md"
	done
	[ -s "$VMLAB/base.img" ] || "$NODES/build.sh" || die "no image of the machines"
	[ -s "$VMSHARE/images/busybox.tar" ] || "$NODES/images.sh" >/dev/null || die "no test images"
	mkdir -p "$WORK/share" "$WORK/$RUNTIME"
	make -s -C "$repo" install DESTDIR="$WORK/share/root" >"$WORK/install.log" 2>&1 || die "see $WORK/install.log"
}

# finish ends what this run may have started, and nothing of anybody else.
finish() {
	[ -z "${KEEP:-}" ] || return
	"$here/vm.sh" stop n1 n2
	[ ! -d "$VMLAB/cp" ] || "$NODES/cluster.sh" down
}

groups=("${@:-}")
[ -n "${groups[0]}" ] || groups=(standalone cluster stats restarts power)
for group in "${groups[@]}"; do
	[ -e "$here/checks/$group.sh" ] || die "no group $group: there are $(cd "$here/checks" && echo *.sh)"
done
prepare
trap finish EXIT
for group in "${groups[@]}"; do
	# shellcheck source=/dev/null
	. "$here/checks/$group.sh"
done
echo "node: $passed passed, $failed failed, $notyet not yet"
[ "$failed" = 0 ]
