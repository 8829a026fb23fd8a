# The power fails at random moments of churn; nobody does anything about it.
# shellcheck shell=bash

power_up() {
	need_cluster
	k delete deployment/roll --ignore-not-found --now >/dev/null
	apply power
	k rollout status deployment/power --timeout=240s
	ready steady
	ready shared
}

# counts: how often steady and shared began anew, and how the last time ended.
counts() {
	k get pod steady shared -o json | jq -r '[.items[] | .status.containerStatuses[0]
		| "\(.restartCount) \(.lastState.terminated | "\(.exitCode) \(.reason)")"] | join(", ")'
}

# churn: pods come and go until the moment comes; even cuts also lose what the disk had not yet.
cut_in_churn() { # ROUND
	k set env deployment/power "ROUND=$1" >/dev/null
	k delete pod ender --now --wait=false --ignore-not-found >/dev/null
	figure_sleep=$((RANDOM % 9)).$((RANDOM % 10))
	sleep "$figure_sleep"
	if [ $(($1 % 2)) = 0 ]; then KILL=1 "$here/vm.sh" cut n1; else "$here/vm.sh" cut n1; fi
	vm n1 "ip route replace $(cidrs n2 | cut -d' ' -f1) via $(vmip n2)"
	begin=$SECONDS
	runtime_is_up() { vm n1 "systemctl is-active $RUNTIME"; }
	within 60 runtime_is_up
	same "restarts of the unit" 0 "$(vm n1 "systemctl show -p NRestarts --value $RUNTIME")"
	back
	figure "cut after $figure_sleep s of churn, back after $((SECONDS - begin)) s; steady, shared: $(counts)"
	apply power
}

# back: all pods are Ready again on this boot, with addresses that are true.
back() {
	local boot
	boot=$(vm n1 "date -d \"\$(uptime -s)\" +%s")
	# Ready may be what the API server still believes of before the cut.
	renewed() {
		k get pod -l 'app in (steady,power)' -o json | jq -e --argjson boot "$boot" '[.items[]
			| select(.metadata.deletionTimestamp == null)
			| .status.containerStatuses[]? | .ready and (.state.running.startedAt | fromdate) >= $boot - 2]
			| length >= 6 and all'
	}
	within 180 renewed
	k rollout status deployment/power --timeout=120s
	vm n1 'curl -s -m 20 http://127.0.0.1:18088/' | grep steady
	for ip in $(k get pod -l app=power -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null) | .status.podIP'); do
		vm n1 "curl -s -m 20 http://$ip:8080/" >/dev/null || no "no answer from $ip"
	done
}

# As many addresses are taken as there are pods in networks.
nothing_leaked() {
	gone deployment/power pod/steady pod/ender pod/shared
	if [ "$RUNTIME" = crib ]; then
		as_many() { vm n1 '[ "$(ip -br link show type veth | grep -c .)" = "$(crictl pods -q -s ready | grep -c .)" ] &&
			[ "$(ls /run/crib/networks/*/ | grep -c "^10\.88\..*[0-9]$")" = "$(crictl pods -q -s ready | grep -c .)" ]'; }
	else
		as_many() { vm n1 '[ "$(ls /var/lib/cni/networks/lab | grep -c "^10\.88\.")" = "$(crictl pods -q -s ready | grep -c .)" ]'; }
	fi
	within 60 as_many || no "addresses: $(vm n1 'ls /run/crib/networks/* /var/lib/cni/networks/* 2>/dev/null' | paste -sd' '); pods: $(vm n1 'crictl pods -q -s ready | grep -c .')"
}

images_intact() {
	vm n1 'crictl images -o json | grep lab.local/busybox'
	! k get events -A --no-headers | grep -E 'ErrImage|CreateContainerError|Failed to pull'
}

group=power
check pods power_up
for ((cut = 1; cut <= ${CUTS:-10}; cut++)); do check "cut-$cut" cut_in_churn "$cut"; done
check images-intact images_intact
check nothing-leaked nothing_leaked
