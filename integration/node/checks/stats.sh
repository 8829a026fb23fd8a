# What the kubelet tells of pods: its summary and cAdvisor's metrics, with the gate
# PodAndContainerStatsFromCRI off, as it is by default, and on.
# shellcheck shell=bash

kubelet_get() { vm n1 "curl -sk -m 60 https://127.0.0.1:10250/$1"; }

# stats_up WORD: a kubelet with the gate, and a pod that has had some traffic.
stats_up() {
	need_cluster
	"$here/kubelet.sh" n1 "$(socket)" "featureGates: {PodAndContainerStatsFromCRI: $1}"
	k wait --for=condition=Ready node/n1 --timeout=120s
	k get pod/self >/dev/null 2>&1 || apply web
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

node_metrics() { kubelet_get metrics/resource | grep -E '^(pod|container)_(cpu|memory)' | grep 'pod="self"'; }

# Half a minute is what a figure may take that comes by itself; then it is not there.
for gate in off on; do
	group=stats
	check "kubelet-with-gate-$gate" stats_up "$([ $gate = on ] && echo true || echo false)"
	group=stats-gate-$gate
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
check kubelet-as-before stats_up false
