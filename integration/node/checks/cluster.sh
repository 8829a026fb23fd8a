# Two nodes whose pod CIDRs come from kube-controller-manager, and no CNI file.
# shellcheck shell=bash

no_cni_file() { vm n1 '[ -z "$(ls /etc/cni/net.d 2>/dev/null)" ]'; }

group=cluster
check machines-and-control-plane fresh_cluster
check n1-ready-after-cidr join n1
check n2-ready-after-cidr join n2
check routes routes
[ "$RUNTIME" != crib ] || check no-cni-file no_cni_file
for part in network workloads hands pressure; do
	# shellcheck source=/dev/null
	. "$here/checks/$part.sh"
done
