#!/bin/bash
# kubelet.sh NAME SOCKET [LINE..]: run a kubelet in the VM as a unit that comes back
# after a reboot; a node of the cluster, or with STANDALONE=1 on its own with static
# pods. LINEs go into its configuration, in the place of ours with the same key.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
name=${1:?usage: kubelet.sh NAME SOCKET [LINE..]} socket=${2:?}
shift 2

# The token is one that the control plane of NODES knows.
kubeconfig() {
	cat <<-END
	apiVersion: v1
	kind: Config
	current-context: lab
	clusters: [{name: lab, cluster: {server: "https://$VMNET.1:6443", certificate-authority-data: $(base64 -w0 <"$VMLAB/cp/ca.crt")}}]
	users: [{name: u, user: {token: $(grep ",system:node:$name," "$VMLAB/cp/tokens" | cut -d, -f1)}}]
	contexts: [{name: lab, context: {cluster: lab, user: u}}]
	END
}

configuration() {
	local line
	{
		for line in "$@"; do echo "$line"; done
		cat <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
		authorization: {mode: AlwaysAllow}
		cgroupDriver: systemd
		containerRuntimeEndpoint: $socket
		staticPodPath: /etc/kubernetes/manifests
		clusterDNS: [10.96.0.10]
		clusterDomain: cluster.local
		containerLogMaxSize: 100Ki
		containerLogMonitorInterval: 3s
		runtimeRequestTimeout: 5m
		failSwapOn: false
		evictionHard: {memory.available: 50Mi}
		evictionPressureTransitionPeriod: 5s
		END
	} | awk -F: '!seen[$1]++'
}

vm "$name" 'mkdir -p /etc/kubernetes/manifests'
configuration "$@" | vm "$name" 'cat >/etc/kubernetes/kubelet.yaml'
flags="--config=/etc/kubernetes/kubelet.yaml --v=2"
if [ -z "${STANDALONE:-}" ]; then
	kubeconfig | vm "$name" 'cat >/etc/kubernetes/kubelet.conf'
	flags+=" --kubeconfig=/etc/kubernetes/kubelet.conf --node-ip=$(vmip "$name"),fd77::$(($(vmnum "$name") + 10))"
fi
vm "$name" 'cat >/etc/systemd/system/kubelet.service
	systemctl daemon-reload; systemctl enable -q kubelet; systemctl restart kubelet' <<END
[Unit]
After=vmlab-init.service
[Service]
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/lab/bin
ExecStart=/lab/bin/kubelet $flags
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
END
