# Nobody's pods notice that the kubelet or the runtime was restarted.
# shellcheck shell=bash

restarts_up() {
	need_cluster
	apply web
	apply deployment
	k rollout status daemonset/web --timeout=180s
	k rollout status deployment/roll --timeout=180s
	ready self
}

# lasting prints what must not change of all pods that are to stay.
lasting() {
	k get pod -l 'app in (web,self)' -o json | jq -r '.items[]
		| [.metadata.name, .metadata.uid, .status.phase, (.status.podIPs | map(.ip) | join(",")),
		   (.status.containerStatuses[] | .containerID, .restartCount)] | @tsv' | sort
}

# unseen COMMAND..: after it, and after the kubelet looked again, all is as before.
unseen() {
	local before
	before=$(lasting)
	"$@"
	k wait --for=condition=Ready node/n1 node/n2 --timeout=120s
	k wait --for=condition=Ready pod -l 'app in (web,self)' --timeout=120s
	sleep 12 # the kubelet relists once a second, and tells the API server after ten at most
	same "pods" "$before" "$(lasting)"
	answers self "http://$(of pod/self .status.podIP):8080/" self
	vm n1 'curl -s -m 20 http://127.0.0.1:18080/' | grep '^n1 '
}

restart_unit() { vm n1 "systemctl restart $1"; }

# kill_runtime waits until the one after it is ready.
kill_runtime() {
	script n1 "$RUNTIME" <<-'END'
	pid=$(systemctl show -p MainPID --value "$1")
	kill -9 "$pid"
	for i in $(seq 600); do
		now=$(systemctl show -p MainPID --value "$1")
		if [ "$now" != "$pid" ] && [ "$now" != 0 ] && systemctl is-active -q "$1"; then break; fi
		sleep 0.1
	done
	systemctl is-active "$1"
	END
}

# kills NUMBER, while a deployment is rolled over and over.
kills_in_a_rollout() {
	local i
	for ((i = 1; i <= $1; i++)); do
		[ $((i % 5)) != 1 ] || k set env deployment/roll "ROUND=$i"
		kill_runtime
	done
	k rollout status deployment/roll --timeout=240s
	stays() { same "pods of the deployment" 3 "$(k get pod -l app=roll --no-headers | grep -c .)"; }
	within 120 stays
}

# A container that ends while there is no runtime: how and when is told afterwards.
exit_meanwhile() {
	local at
	k delete pod/exits --ignore-not-found --now >/dev/null
	k run exits --image=lab.local/busybox:1 --image-pull-policy=Never --restart=Never \
		--overrides='{"spec":{"nodeName":"n1"}}' --command -- sh -c 'until [ -e /go ]; do sleep 0.1; done; exit 42'
	ready exits
	at=$(script n1 "$RUNTIME" <<-'END'
	pid=$(pgrep -f -o 'until \[ -e /go')
	systemctl stop "$1"
	touch "/proc/$pid/root/go"
	for i in $(seq 100); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
	date +%s
	sleep 8
	systemctl start "$1"
	END
	)
	k wait --for=jsonpath='{.status.phase}'=Failed --timeout=120s pod/exits
	is pod/exits '.status.containerStatuses[0].state.terminated.exitCode' 42
	late=$(($(date -d "$(of pod/exits '.status.containerStatuses[0].state.terminated.finishedAt')" +%s) - at))
	figure "told $late s after it was so"
	[ "${late#-}" -le 3 ] || no "finishedAt is $late s off"
	gone pod/exits
}

# A hundred pods of crictl, so the kubelet must not see them.
status_with_100_pods() {
	vm n1 'systemctl stop kubelet'
	script n1 "$RUNTIME" <<-'END' || { vm n1 'systemctl start kubelet'; no "see the log"; }
	cd /tmp
	for i in $(seq 100); do
		printf '{"metadata":{"name":"p%s","namespace":"many","uid":"p%s","attempt":0},"linux":{}}' "$i" "$i" >"p$i.json"
		crictl runp "p$i.json" >/dev/null
	done
	echo "pods: $(crictl pods -q --namespace many -s ready | grep -c .)"
	begin=$(date +%s%3N)
	kill -9 "$(systemctl show -p MainPID --value "$1")"
	# The unit is restarted by systemd; without that what its pause takes would count, too.
	systemctl start "$1"
	until crictl version >/dev/null 2>&1; do sleep 0.1; done
	echo "= first answer after $(($(date +%s%3N) - begin)) ms"
	until [ "$(crictl pods -q --namespace many -s ready | grep -c .)" = 100 ]; do sleep 0.1; done
	echo "= all 100 after $(($(date +%s%3N) - begin)) ms"
	begin=$(date +%s%3N)
	crictl version >/dev/null
	echo "= of which crictl itself took $(($(date +%s%3N) - begin)) ms a time"
	started=$(systemctl show -p ExecMainStartTimestampMonotonic --value "$1")
	echo "= the daemon from its start to ready $((($(systemctl show -p ActiveEnterTimestampMonotonic --value "$1") - started) / 1000)) ms"
	for p in $(crictl pods -q --namespace many); do echo "$p"; done | xargs -n 25 crictl rmp -f >/dev/null
	END
	vm n1 'systemctl start kubelet'
	k wait --for=condition=Ready node/n1 --timeout=120s
}

group=restarts
check pods restarts_up
check kubelet-restart unseen restart_unit kubelet
check runtime-restart unseen restart_unit "$RUNTIME"
check runtime-killed unseen kill_runtime
check runtime-killed-20-times-in-a-rollout unseen kills_in_a_rollout 20
check exit-meanwhile exit_meanwhile
check status-with-100-pods status_with_100_pods
