# What people do with kubectl; part of cluster.
# shellcheck shell=bash

sleeper_up() {
	apply sleeper
	ready sleeper
}

exec_through_api() {
	same output out "$(k exec sleeper -- sh -c 'echo out; echo err >&2' 2>/dev/null)"
	same input hello "$(echo hello | k exec -i sleeper -- cat)"
	local status=0
	k exec sleeper -- sh -c 'exit 7' || status=$?
	same status 7 "$status"
	command script -qec "$(kubectl) exec -it sleeper -- tty" /dev/null </dev/null | grep /dev/pts/
}

attach() {
	# shellcheck disable=SC2046
	(echo word && sleep 5) | timeout 60 $(kubectl) attach -i sleeper | grep 'got word'
}

copy() {
	local file=$WORK/copy
	head -c 3000000 /dev/urandom >"$file"
	k cp "$file" sleeper:/tmp/copy
	k cp sleeper:/tmp/copy "$file.back"
	cmp "$file" "$file.back"
	rm "$file" "$file.back"
}

port_forward() {
	local pid answer=''
	k port-forward pod/self 28080:8080 >/dev/null 2>&1 &
	pid=$!
	served() { inlab curl -s -m 20 http://127.0.0.1:28080/; }
	answer=$(within 30 served) || true
	pkill -P $pid || true
	kill $pid 2>/dev/null || true
	same answer self "$answer"
}

logs_follow() {
	local begin
	apply chatter
	ready chatter
	begin=$SECONDS
	# shellcheck disable=SC2046
	timeout 20 $(kubectl) logs -f chatter >"$WORK/follow" || true
	figure "$(grep -c . "$WORK/follow") lines in $((SECONDS - begin)) s"
	same "lines in order" "" "$(awk '$1 == "line" { if (n && $2 != n + 1) { print "line " $2 " after " n; exit } n = $2 }' "$WORK/follow")"
	[ -s "$WORK/follow" ] || no "nothing was told"
}

log_rotation() {
	local dir
	dir=/var/log/pods/default_chatter_$(of pod/chatter .metadata.uid)/c
	within 60 vm n1 "ls $dir | grep -c . | grep -vx 1"
	within 90 vm n1 "ls $dir | grep gz"
	k logs chatter --tail=5 | grep '^line'
	gone pod/chatter
}

debug() {
	k debug sleeper --image=lab.local/busybox:1 --image-pull-policy=Never --target=c -c tool --profile=general \
		-- sh -c 'ps; sleep 100000'
	is_running() { [ "$(of pod/sleeper '.status.ephemeralContainerStatuses[0].state.running.startedAt')" ]; }
	within 90 is_running
	within 20 k logs sleeper -c tool | grep -E '1 .*(sh -c|sleep)'
}

# limits: memory.max and cpu.max of the container.
limits() { vm n1 "cd /sys/fs/cgroup\$(cut -d: -f3 /proc/\$(crictl inspect $(of pod/sleeper '.status.containerStatuses[0].containerID' | sed 's,.*//,,') | jq .info.pid)/cgroup); cat memory.max cpu.max" | paste -sd' '; }

resize() {
	local id
	id=$(of pod/sleeper '.status.containerStatuses[0].containerID')
	same before '67108864 20000 100000' "$(limits)"
	k patch pod sleeper --subresource resize -p \
		'{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"300m","memory":"128Mi"}}}]}}'
	resized() { is pod/sleeper '.status.containerStatuses[0].resources.limits.memory' 128Mi; }
	within 60 resized
	same after '134217728 30000 100000' "$(limits)"
	is pod/sleeper '.status.containerStatuses[0].containerID' "$id"
	is pod/sleeper '.status.containerStatuses[0].restartCount' 0
	gone pod/sleeper
}

check sleeper sleeper_up
check exec exec_through_api
check attach attach
check copy copy
check port-forward port_forward
check logs-follow logs_follow
check log-rotation log_rotation
check ephemeral-container debug
check resize-in-place resize
