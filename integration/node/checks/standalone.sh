# A kubelet without API server, with cgroupDriver left at cgroupfs, and a static pod.
# shellcheck shell=bash

# static PATH: of the pod's status, as the kubelet tells it.
static() {
	vm n1 "curl -sk -m 20 https://127.0.0.1:10250/pods" |
		jq -er '.items[]? | select(.metadata.name | startswith("web")) | .status | '"$1"
}

static_is() { same "$1" "$2" "$(static "$1")"; }

standalone_up() {
	FRESH=1 "$here/vm.sh" start n1
	runtime n1
	sed 's,IMAGE,lab.local/busybox:1,' "$here/manifests/static.yaml" |
		vm n1 'mkdir -p /etc/kubernetes/manifests; cat >/etc/kubernetes/manifests/web.yaml'
	STANDALONE=1 "$here/kubelet.sh" n1 "$(socket)" 'cgroupDriver: cgroupfs' 'podCIDR: 10.88.1.0/24,fd88:0:0:1::/64'
}

driver_from_runtime() {
	within 120 vm n1 "journalctl -u kubelet -o cat | grep -m1 -E 'cgroup driver.*from the CRI runtime.*\"systemd\"'"
}

static_pod_ready() {
	local begin=$SECONDS
	within 240 static_is '.conditions[] | select(.type=="Ready") | .status' True
	figure "Ready after $((SECONDS - begin)) s more"
}

static_pod_answers() {
	local ip
	for ip in $(static '.podIPs[].ip'); do
		same "$ip" "hello from web-n1" "$(vm n1 "curl -s -m 20 '$(url "$ip" 8080)'")"
	done
	same addresses 2 "$(static '.podIPs | length')"
}

static_host_port() {
	same "port of the host" "hello from web-n1" "$(vm n1 'curl -s -m 20 http://10.77.0.11:18080/')"
	same "port of localhost" "hello from web-n1" "$(vm n1 'curl -s -m 20 http://127.0.0.1:18080/')"
}

scopes_of_systemd() {
	vm n1 'cat /proc/$(pgrep -o -x httpd)/cgroup' | grep -E '/kubepods.slice/kubepods-burstable.slice/.*\.scope$'
	vm n1 'c=/sys/fs/cgroup$(cut -d: -f3 /proc/$(pgrep -o -x httpd)/cgroup); cat $c/memory.max $c/cpu.max' | grep -x 67108864
}

kubelet_exec_and_logs() {
	same exec web-n1 "$(vm n1 "curl -sk -X POST 'https://127.0.0.1:10250/run/default/web-n1/web?cmd=hostname'")"
	same log begun "$(vm n1 'curl -sk https://127.0.0.1:10250/containerLogs/default/web-n1/web')"
}

killed_container_restarts() {
	vm n1 'kill -9 $(pgrep -o -x httpd)'
	within 120 static_is '.containerStatuses[0] | "\(.restartCount) \(.ready) \(.lastState.terminated.exitCode)"' '1 true 137'
}

runtime_restart_unseen() {
	local before
	before=$(static '[.podIP, .containerStatuses[0].containerID]|tostring')
	vm n1 "systemctl restart $RUNTIME; sleep 12"
	same pod "$before" "$(static '[.podIP, .containerStatuses[0].containerID]|tostring')"
	same port "hello from web-n1" "$(vm n1 'curl -s -m 20 http://127.0.0.1:18080/')"
}

static_pod_goes() {
	vm n1 'rm /etc/kubernetes/manifests/web.yaml'
	within 120 vm n1 '! pgrep -x httpd && [ -z "$(crictl pods -q -s ready)" ]'
	within 60 vm n1 '[ -z "$(ip -br link show type veth)" ]'
	within 120 vm n1 '! find /sys/fs/cgroup/kubepods.slice -type d -name "*.scope" | grep .'
}

no_warnings() {
	local lines
	lines=$(vm n1 "journalctl -u $RUNTIME -o cat --no-pager" | grep -E 'level=(WARN|ERROR|warn|error|fatal)|^panic' || true)
	echo "$lines"
	figure "$(grep -c . <<<"$lines") lines of warnings"
	[ "$RUNTIME" != crib ] || ! grep -E 'level=ERROR|^panic' <<<"$lines"
}

group=standalone
check up standalone_up
check driver-from-runtime driver_from_runtime
check static-pod-ready static_pod_ready
check static-pod-answers static_pod_answers
check host-port static_host_port
check scopes-of-systemd scopes_of_systemd
check kubelet-exec-and-logs kubelet_exec_and_logs
check killed-container-restarts killed_container_restarts
check runtime-restart-unseen runtime_restart_unseen
check static-pod-goes static_pod_goes
check no-errors-logged no_warnings
