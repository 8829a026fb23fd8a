# A cluster of the VMs n1 and n2; sourced by run.sh.
# shellcheck shell=bash

# runtime NAME: installs it, and prints its socket.
runtime() { if [ "$RUNTIME" = crib ]; then "$here/runtime-crib.sh" "$1"; else "$here/runtime-containerd.sh" "$1" auto; fi; }

socket() { if [ "$RUNTIME" = crib ]; then echo unix:///run/crib/crib.sock; else echo unix:///run/containerd/containerd.sock; fi; }

# fresh_cluster: a new control plane, two new machines with the runtime, no kubelet yet.
fresh_cluster() {
	[ ! -d "$VMLAB/cp" ] || "$NODES/cluster.sh" down
	FRESH=1 "$here/vm.sh" start n1 n2
	"$NODES/cluster.sh" up
	runtime n1 && runtime n2
	echo "$RUNTIME" >"$WORK/cluster"
}

# registered NAME prints when the node had its CIDR and when it was Ready, in ms.
registered() {
	local cidr='' now
	for _ in {1..1500}; do
		now=$(k get node "$1" -o jsonpath='{.spec.podCIDR} {.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null)
		[[ -n $cidr || $now != [0-9]* ]] || cidr=$(date +%s%3N)
		if [[ $now == [0-9]*True ]]; then echo "$cidr $(date +%s%3N)" && return; fi
		sleep 0.1
	done
	no "$1 never was Ready: $now"
}

# join NAME: the kubelet, until the node is Ready; says how long after its CIDR.
join() {
	local times
	"$here/kubelet.sh" "$1" "$(socket)"
	times=$(registered "$1")
	figure "Ready $((${times#* } - ${times% *})) ms after its CIDR"
	[ $((${times#* } - ${times% *})) -le 10000 ] || no "Ready $((${times#* } - ${times% *})) ms after its CIDR"
}

cidrs() { of "node/$1" '.spec.podCIDRs[*]'; }

# routes: each node to the other's pods, and the control plane to both.
routes() {
	local a b cidr
	for a in n1 n2; do
		b=n$((3 - ${a#n}))
		for cidr in $(cidrs "$a"); do
			vm "$b" "ip route replace $cidr via $(gateway "$a" "$cidr")"
			inlab ip route replace "$cidr" via "$(gateway "$a" "$cidr")"
		done
	done
}

# gateway NODE CIDR: the node's address of that family.
gateway() { case $2 in *:*) echo "fd77::$(($(vmnum "$1") + 10))" ;; *) vmip "$1" ;; esac }

# need_cluster: the one that is there, if it is of this runtime, or a new one.
need_cluster() {
	if [ "$(cat "$WORK/cluster" 2>/dev/null)" = "$RUNTIME" ] && alive "$VMLAB/cp/apiserver.pid" "$VMLAB/cp" &&
		"$here/vm.sh" start n1 n2 && k wait --for=condition=Ready node/n1 node/n2 --timeout=60s; then
		return
	fi
	fresh_cluster && join n1 && join n2 && routes
}
