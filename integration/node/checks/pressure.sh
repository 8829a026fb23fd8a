# When memory or disk of a node runs out; part of cluster, and last in it.
# shellcheck shell=bash

# evicted POD SECONDS
evicted() {
	k wait --for=jsonpath='{.status.phase}'=Failed --timeout="$2s" "pod/$1" || no "$(why "$1")"
	is "pod/$1" .status.reason Evicted
	figure "$(of "pod/$1" .status.message | cut -c1-120)"
}

# relieved CONDITION: the node no longer has it, and takes pods again.
relieved() {
	k wait --for="condition=$1=False" --timeout=120s node/n1
	untainted() { [ -z "$(of node/n1 .spec.taints)" ]; }
	within 120 untainted
	k rollout status daemonset/web --timeout=180s
}

own_limit_of_disk() {
	apply hog-limit
	evicted hog-limit 180
	gone pod/hog-limit
}

memory() {
	local available
	available=$(vm n1 "awk '/MemAvailable/ { print int(\$2 / 1024) }' /proc/meminfo")
	"$here/kubelet.sh" n1 "$(socket)" "evictionHard: {memory.available: $((available - 200))Mi}"
	k wait --for=condition=Ready node/n1 --timeout=60s
	apply hog-memory
	evicted hog-memory 240
	gone pod/hog-memory
	"$here/kubelet.sh" n1 "$(socket)"
	relieved MemoryPressure
}

# unused_image imports one that no pod has: the pause image with another configuration.
unused_image() {
	local dir manifest config
	dir=$(mktemp -d)
	tar -C "$dir" -xf "$VMSHARE/images/pause.tar"
	blob() { cat >"$dir/new" && sum=$(sha256sum <"$dir/new" | cut -d' ' -f1) && size=$(stat -c %s "$dir/new") && mv "$dir/new" "$dir/blobs/sha256/$sum"; }
	manifest=$dir/blobs/sha256/$(jq -r '.manifests[0].digest | sub("sha256:"; "")' "$dir/index.json")
	config=$dir/blobs/sha256/$(jq -r '.config.digest | sub("sha256:"; "")' "$manifest")
	blob < <(jq -c '.config.Env += ["UNUSED=1"]' "$config")
	blob < <(jq -c --arg s "sha256:$sum" --argjson n "$size" '.config.digest = $s | .config.size = $n' "$manifest")
	jq -c --arg s "sha256:$sum" --argjson n "$size" '.manifests[0] |= (.digest = $s | .size = $n
		| .annotations |= map_values("lab.local/unused:1"))' "$dir/index.json" >"$dir/i" && mv "$dir/i" "$dir/index.json"
	tar -C "$dir" -cf "$VMEXTRA/unused.tar" oci-layout index.json blobs
	rm -rf "$dir"
	vm n1 "if [ $RUNTIME = crib ]; then crib images import /extra/unused.tar; else ctr -n k8s.io images import /extra/unused.tar; fi"
	vm n1 'crictl images -o json | grep lab.local/unused'
}

# The kubelet throws away images that nothing uses before it throws away pods.
disk_and_images() {
	local free
	unused_image
	free=$(vm n1 "df -m --output=avail / | tail -n 1")
	"$here/kubelet.sh" n1 "$(socket)" 'imageMinimumGCAge: 1s' \
		"evictionHard: {memory.available: 50Mi, nodefs.available: $((free - 400))Mi, imagefs.available: $((free - 400))Mi}"
	k wait --for=condition=Ready node/n1 --timeout=60s
	apply hog-disk
	evicted hog-disk 240
	no_unused() { vm n1 '! crictl images -o json | grep lab.local/unused'; }
	within 60 no_unused
	gone pod/hog-disk
	"$here/kubelet.sh" n1 "$(socket)"
	relieved DiskPressure
	vm n1 'crictl images -o json | grep lab.local/busybox'
}

check eviction-own-limit own_limit_of_disk
check eviction-memory memory
check eviction-disk-and-image-gc disk_and_images
