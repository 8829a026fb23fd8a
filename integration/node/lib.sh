# Settings and words of the node checks; sourced by the other scripts.
# shellcheck shell=bash
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
NODES=${NODES:-$repo/../shared/nodes} # scripts that build VMs and run a control plane
RUNTIME=${RUNTIME:-crib}              # or containerd, the reference
WORK=${WORK:-$repo/build/node}        # what VMs see at /extra, and the output of the checks
export PODS=${PODS:-10.88.0.0/16,fd88::/56} SERVICES=${SERVICES:-10.96.0.0/16,fd96::/112}
export VMEXTRA=$WORK/share

[ -e "$NODES/lib.sh" ] || {
	echo "node: NODES=$NODES has no lib.sh: the scripts that make virtual machines are needed (make node NODES=DIR)" >&2
	exit 2
}
# shellcheck source=/dev/null
. "$NODES/lib.sh"
set +e # the nodes' scripts set it; here a check that fails is counted

passed=0 failed=0 notyet=0

# check NAME COMMAND..: runs it in a subshell that ends at the first error, and
# prints one line. What it said last is the reason of a failure; all of it is kept
# in a file. A line of its output that begins with "= " is shown with a pass. What the
# file notyet names does not pass, and is a failure when it does.
check() {
	local name=$group/$1 begin=$SECONDS log status reason
	[[ -z ${ONLY:-} || $name =~ $ONLY ]] || return 0
	log=$WORK/$RUNTIME/${name/\//-}.log
	(
		set -eu
		shift
		"$@"
	) >"$log" 2>&1 </dev/null
	status=$?
	if reason=$(awk -v r="$RUNTIME" -v n="$name" '$1 == r && $2 == n { $1 = $2 = ""; print; found = 1 } END { exit !found }' "$here/notyet"); then
		if [ $status != 0 ]; then
			notyet=$((notyet + 1))
			echo "not yet $name:$reason"
		else
			failed=$((failed + 1))
			echo "fail $name: passes: to be taken from the list notyet"
		fi
	elif [ $status = 0 ]; then
		passed=$((passed + 1))
		echo "pass $name ($((SECONDS - begin)) s)$(sed -n 's/^= /; /p' "$log" | tr -d '\n')"
	else
		failed=$((failed + 1))
		echo "fail $name: $(tail -n 1 "$log" | cut -c1-300) ($((SECONDS - begin)) s)"
	fi
}

# figure TEXT is shown on the check's line.
figure() { echo "= $*"; }

no() { echo "$*" && return 1; }

# same WHAT WANT GOT
same() { [ "$2" = "$3" ] || no "$1: want $2, got $3"; }

# within SECONDS COMMAND..: until it succeeds. What it said last is told if it never does.
within() {
	local end=$((SECONDS + $1)) last
	shift
	until last=$("$@" 2>&1); do
		[ "$SECONDS" -lt "$end" ] || no "not within the time: $* ($(tail -n 1 <<<"$last"))" || return 1
		sleep 1
	done
	[ -z "$last" ] || echo "$last"
}

# vm NAME COMMAND: a shell command in the VM, as root.
vm() { vmssh "$1" "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/lab/bin; $2"; }

# script NAME ARGS..: bash in the VM reads the script from the input.
script() {
	local name=$1
	shift
	vmssh "$name" env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/lab/bin bash -es -- "$@"
}

k() { inlab "$VMSHARE/bin/kubectl" --kubeconfig "$VMLAB/cp/admin.conf" "$@"; }

# kubectl: the same as words, for programs that start others.
kubectl() { echo "nsenter -t $(cat "$VMLAB/net.pid") -n $VMSHARE/bin/kubectl --kubeconfig $VMLAB/cp/admin.conf"; }

# apply FILE: of manifests/, with IMAGE and NODE filled in.
apply() { sed "s,IMAGE,lab.local/busybox:1,; s,NODE,${2:-n1}," "$here/manifests/$1.yaml" | k apply -f - >/dev/null; }

# of OBJECT PATH: a field of an object, as in: of pod/web .status.podIP
of() { k get "$1" -o "jsonpath={$2}"; }

# is OBJECT PATH WANT
is() { same "$1 $2" "$3" "$(of "$1" "$2")"; }

ready() { k wait --for=condition=Ready --timeout="${2:-180}s" "pod/$1" >/dev/null || no "$(why "$1")"; }

# why POD: in one line, what keeps it.
why() {
	k get "pod/$1" -o json | jq -rc '"pod " + .metadata.name + " " + (.status.phase // "") + " "
		+ ([.status.containerStatuses[]?.state] | tostring)'
	k get events --field-selector "involvedObject.name=$1" -o json |
		jq -r '[.items[] | select(.type == "Warning") | .message] | last // empty' | head -c 300
}

gone() { k delete --now --ignore-not-found --timeout=120s "$@" >/dev/null; }

# url ADDRESS PORT, for both families.
url() { case $1 in *:*) echo "http://[$1]:$2/" ;; *) echo "http://$1:$2/" ;; esac }

# answers FROM URL WANT: what pod FROM reads there begins with WANT.
answers() {
	local got
	got=$(k exec "$1" -- timeout 20 wget -qO- "$2") || no "$1 does not reach $2"
	[[ $got == "$3"* ]] || no "$1 reads '$got' from $2, not '$3'"
}
