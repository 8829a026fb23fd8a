# What the kubelet tells of pods: its summary and cAdvisor's metrics, with the gate
# PodAndContainerStatsFromCRI off, as it is by default, and on. Where it is off, the
# kubelet's cAdvisor asks containerd's API at containerd's path, which crib then serves.
# shellcheck shell=bash

kubelet_get() { vm n1 "curl -sk -m 60 https://127.0.0.1:10250/$1"; }

# takes_place WORD: whether crib on n1 is in the place of containerd. CRI at /run/crib
# is then none, so crictl is told.
takes_place() {
	script n1 "$1" <<-'END'
	socket=/run/crib/crib.sock file=/etc/crib/conf.d/place.toml
	mkdir -p /etc/crib/conf.d
	rm -f "$file"
	if [ "$1" = true ]; then
		socket=/run/containerd/containerd.sock
		printf 'version = 1\nlisten = "%s"\n' "$socket" >"$file"
	fi
	sed -i "s,^runtime-endpoint: .*,runtime-endpoint: unix://$socket," /etc/crictl.yaml
	systemctl restart crib
	END
}

# cadvisor_registers: cAdvisor asks for containerd once, for two seconds, in which a
# machine that is emulated and busy may not answer; then the kubelet begins anew.
cadvisor_registers() {
	script n1 <<-'END'
	for i in $(seq 5); do
		for j in $(seq 30); do
			said=$(journalctl -o cat --no-pager "_PID=$(systemctl show -p MainPID --value kubelet)" |
				grep -o 'Registration of the containerd container factory [a-z]*') || true
			case $said in
			*successfully) echo "= cAdvisor registered containerd's API at start $i of the kubelet" && exit ;;
			*failed) break ;;
			esac
			sleep 1
		done
		systemctl restart kubelet
	done
	echo "cAdvisor does not find containerd's API: $said" && exit 1
	END
}

# stats_up WORD PLACE: a kubelet with the gate, on a crib in containerd's place or not,
# and pods of that crib, since those before keep what they have, with some traffic.
stats_up() {
	local socket
	need_cluster
	socket=$(socket)
	if [ "$RUNTIME" = crib ]; then
		takes_place "$2"
		[ "$2" = false ] || socket=unix:///run/containerd/containerd.sock
	fi
	"$here/kubelet.sh" n1 "$socket" "featureGates: {PodAndContainerStatsFromCRI: $1}"
	[ "$2" = false ] || cadvisor_registers
	k wait --for=condition=Ready node/n1 --timeout=120s
	gone pod/self daemonset/web
	apply web
	ready self
	k rollout status daemonset/web --timeout=180s
	for _ in 1 2 3; do vm n2 "curl -s -m 20 http://$(of pod/self .status.podIP):8080/" || true; done
}

# in_summary FILTER: a figure above zero in the summary's entry of pod self.
in_summary() {
	local value
	value=$(kubelet_get stats/summary | jq -r '.pods[]? | select(.podRef.name == "self") | '"$1")
	[[ $value =~ ^[1-9][0-9.e+]*$ ]] || no "the summary has '$value' for $1"
}

# in_cadvisor METRIC LABELS: a figure above zero in a line that has all LABELS.
in_cadvisor() {
	local lines label
	lines=$(kubelet_get metrics/cadvisor | grep "^$1{" | grep 'pod="self"' || true)
	for label in $2; do lines=$(grep "$label" <<<"$lines" || true); done
	awk '$2 > 0 { found = 1 } END { exit !found }' <<<"$lines" ||
		no "/metrics/cadvisor has no figure of $1 with $2 for the pod"
}

summary_pod() {
	within 40 in_summary .cpu.usageCoreNanoSeconds
	within 15 in_summary .memory.workingSetBytes
}

summary_processes() { within 15 in_summary .process_stats.process_count; }

summary_container() {
	within 40 in_summary '.containers[0].cpu.usageCoreNanoSeconds'
	within 15 in_summary '.containers[0].memory.workingSetBytes'
	within 15 in_summary '.containers[0].rootfs.usedBytes'
	within 15 in_summary '.containers[0].logs.capacityBytes'
}

summary_network() { within 40 in_summary .network.rxBytes; }

cadvisor_container() {
	within 40 in_cadvisor container_cpu_usage_seconds_total 'container="web"'
	within 15 in_cadvisor container_memory_working_set_bytes 'container="web"'
}

cadvisor_pod() { within 40 in_cadvisor container_memory_working_set_bytes 'container=""'; }

cadvisor_network() { within 40 in_cadvisor container_network_receive_bytes_total 'interface="eth0"'; }

# sandbox_process WORD: whether pod self has a process without having asked for one.
sandbox_process() {
	local want=0 got
	[ "$1" = false ] || want=1
	got=$(vm n1 'ip netns pids "$(crictl inspectp "$(crictl pods -q --name "^self$" -s ready)" |
		jq -r ".info.runtimeSpec.linux.namespaces[] | select(.type == \"network\").path" | xargs basename)" |
		while read -r pid; do cat "/proc/$pid/comm"; done' | grep -c crib-init || true)
	same "processes of the sandbox" "$want" "$got"
}

# by_containerds_clients: what runs is found by those who ask containerd.
by_containerds_clients() {
	vm n1 "ctr -n k8s.io containers ls -q | grep $(of pod/self '.status.containerStatuses[0].containerID' | sed 's,.*//,,')"
	vm n1 'ctr -n k8s.io images ls -q | grep lab.local/busybox:1'
}

node_metrics() { kubelet_get metrics/resource | grep -E '^(pod|container)_(cpu|memory)' | grep 'pod="self"'; }

# Half a minute is what a figure may take that comes by itself; then it is not there.
for gate in off on; do
	if [ $gate = on ]; then on=true place=false; else on=false place=true; fi
	group=stats
	check "kubelet-with-gate-$gate" stats_up $on $place
	group=stats-gate-$gate
	[ "$RUNTIME" != crib ] || check sandbox-process sandbox_process $place
	[ $gate = on ] || check containerds-clients by_containerds_clients
	check summary-container summary_container
	check summary-pod summary_pod
	check summary-processes summary_processes
	check summary-network summary_network
	check cadvisor-container cadvisor_container
	check cadvisor-pod cadvisor_pod
	check cadvisor-network cadvisor_network
	check metrics-resource node_metrics
done
group=stats
check kubelet-as-before stats_up false false
