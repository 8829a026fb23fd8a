# What controllers and the kubelet ask of pods and containers; part of cluster.
# shellcheck shell=bash

deployment_rolls() {
	apply deployment
	k rollout status deployment/roll --timeout=180s
	k set env deployment/roll ROUND=1
	k rollout status deployment/roll --timeout=240s
	is deployment/roll .status.readyReplicas 3
}

job() {
	apply jobs
	k wait --for=condition=Complete --timeout=180s job/job
	k logs job/job | grep 'done in job-'
}

# Begun with the job; the clock makes it the slowest of all.
cron_job() {
	last() { [ "$(of cronjob/cron .status.lastSuccessfulTime)" ]; }
	within 150 last
	gone cronjob/cron job/job
}

stateful_same_name() {
	local uid
	apply stateful
	k rollout status statefulset/state --timeout=120s
	uid=$(of pod/state-0 .metadata.uid)
	gone pod/state-0
	another() { [ "$(of pod/state-0 .metadata.uid)" != "$uid" ]; }
	within 60 another
	ready state-0
	gone statefulset/state
}

init_and_sidecar() {
	apply init
	k wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=180s pod/init || no "$(why init)"
	same order 'one side two ' "$(k logs init -c main)"
	is pod/init '.status.initContainerStatuses[?(@.name=="side")].state.terminated.exitCode' 0
	gone pod/init
}

# liveness begins both at once; restarted reads one of them.
liveness_begins() { apply liveness; }

restarted() { # POD
	more() { [ "$(of "pod/$1" '.status.containerStatuses[0].restartCount')" -ge 1 ]; }
	within 180 more "$1"
	k get events --field-selector "involvedObject.name=$1" | grep 'failed liveness probe'
	gone "pod/$1"
}

hooks() {
	vm n1 'rm -rf /var/tmp/hooks'
	apply hooks
	ready hooks
	k delete pod/hooks --timeout=120s
	same order 'start stop term' "$(vm n1 'cat /var/tmp/hooks/order' | paste -sd' ')"
}

termination_message() {
	apply message
	k wait --for=jsonpath='{.status.phase}'=Failed --timeout=120s pod/message
	is pod/message '.status.containerStatuses[?(@.name=="file")].state.terminated.message' 'by file'
	is pod/message '.status.containerStatuses[?(@.name=="file")].state.terminated.exitCode' 3
	same "by log" "by log" "$(of pod/message '.status.containerStatuses[?(@.name=="log")].state.terminated.message' | tr -d '\n')"
	gone pod/message
}

shared_processes() {
	apply shared
	ready shared
	k exec shared -c a -- ps | grep 'sleep 100002'
	k exec shared -c a -- ps | grep -E '^ +1 ' | grep -v 'sleep'
	gone pod/shared
}

user_namespace() {
	apply userns
	ready userns 60 || { gone pod/userns && return 1; }
	same "root on the node" yes "$(k exec userns -- awk '$1 == 0 && $2 >= 65536 { print "yes" }' /proc/self/uid_map)"
	same "owner of a file in a volume" 0 "$(k exec userns -- stat -c %u /v/mine)"
	gone pod/userns
}

volumes() {
	apply volumes
	ready volumes
	same conf value "$(k exec volumes -- cat /conf/key)"
	same subPath value "$(k exec volumes -- cat /one/key)"
	same id 'uid=1000 gid=1000 groups=2000' "$(k exec volumes -- id | sed 's/([^)]*)//g; s/groups=1000,2000/groups=2000/')"
	k exec volumes -- sh -c 'echo x >/mem/f && ! echo x >/f'
	same seccomp 2 "$(k exec volumes -- awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
	gone pod/volumes configmap/conf
}

crash_backs_off() {
	apply crash
	twice() { [ "$(of pod/crash '.status.containerStatuses[0].restartCount')" -ge 2 ]; }
	backing_off() { is pod/crash '.status.containerStatuses[0].state.waiting.reason' CrashLoopBackOff; }
	within 180 twice
	within 60 backing_off
	is pod/crash '.status.containerStatuses[0].lastState.terminated.exitCode' 5
	same "log of the last" ill "$(k logs crash --previous)"
	gone pod/crash
}

drain_and_uncordon() {
	k drain n2 --ignore-daemonsets --delete-emptydir-data --force --timeout=240s
	! k get pod -A --field-selector spec.nodeName=n2 --no-headers | grep -v '^default *web-' || no "pods left on n2"
	k uncordon n2
	k scale deployment/roll --replicas=5
	k rollout status deployment/roll --timeout=180s
	k get pod -l app=roll -o jsonpath='{.items[*].spec.nodeName}' | grep n2
	k scale deployment/roll --replicas=3
}

check deployment-rolls deployment_rolls
check job job
check liveness-begins liveness_begins
check stateful-set-same-name stateful_same_name
check init-and-sidecar init_and_sidecar
check liveness-exec restarted live-exec
check liveness-http restarted live-http
check post-start-and-pre-stop hooks
check termination-message termination_message
check share-process-namespace shared_processes
check user-namespace user_namespace
check volumes-and-security volumes
check crash-backs-off crash_backs_off
check cron-job cron_job
check drain-and-uncordon drain_and_uncordon
