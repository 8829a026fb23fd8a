# What pods reach, in a cluster without any network but the runtime's; part of cluster.
# shellcheck shell=bash

# web_pods: node and addresses of the servers, a line each.
web_pods() { k get pod -l app=web -o jsonpath='{range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIPs[*].ip}{"\n"}{end}'; }

web_up() {
	apply web
	k rollout status daemonset/web --timeout=180s
	ready self
}

across_nodes() { # WORD of web_pods' lines: 3 is IPv4, 4 is IPv6
	local from to node ip
	for from in $(web_pods | cut -d' ' -f1); do
		while read -r to node ip; do
			answers "$from" "$(url "$ip" 8080)" "$node $to"
		done < <(web_pods | cut -d' ' -f"1,2,$1")
	done
}

two_addresses() {
	local addresses
	while read -r _ _ addresses; do [[ $addresses =~ ^10\.88\.[0-9.]+\ fd88: ]] || no "a pod has $addresses"; done < <(web_pods)
	is pod/self '.status.hostIPs[*].ip' '10.77.0.11 fd77::11'
}

host_port() {
	local node ip
	for node in n1 n2; do
		for ip in 10.77.0.1"${node#n}" "fd77::1${node#n}"; do
			[[ $(inlab curl -s -m 20 "$(url "$ip" 18080)") == "$node "* ]] || no "port 18080 of $ip does not answer"
		done
	done
	answers self http://10.77.0.12:18080/ "n2 "
	answers self http://10.77.0.11:18080/ "n1 "
}

host_network() {
	apply hostnet n2
	ready hostnet
	is pod/hostnet .status.podIP 10.77.0.12
	answers self http://10.77.0.12:18090/ n2
	[ "$(inlab curl -s -m 20 http://10.77.0.12:18090/)" = n2 ] || no "no answer from the host's port"
	gone pod/hostnet
}

dns_config() {
	apply dns
	ready dns
	same resolv.conf 'nameserver 192.0.2.53 options ndots:3 search a.example b.example' \
		"$(k exec dns -- sh -c 'for w in name opt sea; do grep ^$w /etc/resolv.conf; done' | paste -sd' ')"
	k exec dns -- grep -E "^192.0.2.7[[:space:]]+alias.example" /etc/hosts
	k exec dns -- grep -E "[[:space:]]dns-host.sub.default.svc.cluster.local[[:space:]]+dns-host" /etc/hosts
	same hostname dns-host "$(k exec dns -- hostname)"
	k exec self -- grep -x 'nameserver 10.96.0.10' /etc/resolv.conf
	k exec self -- grep -E '^search default.svc.cluster.local svc.cluster.local' /etc/resolv.conf
	gone pod/dns
}

# proxy MODE: kube-proxy on both nodes, with the rules of the mode before removed.
proxy() {
	local node
	for node in n1 n2; do
		{
			echo 'apiVersion: v1
kind: Config
current-context: lab'
			echo "clusters: [{name: lab, cluster: {server: 'https://$VMNET.1:6443', certificate-authority-data: $(base64 -w0 <"$VMLAB/cp/ca.crt")}}]"
			echo "users: [{name: u, user: {token: $(grep ,system:kube-proxy, "$VMLAB/cp/tokens" | cut -d, -f1)}}]"
			echo 'contexts: [{name: lab, context: {cluster: lab, user: u}}]'
		} | vm "$node" 'cat >/etc/kubernetes/proxy.conf'
		script "$node" "$1" "$PODS" <<-'END'
		systemctl stop kube-proxy 2>/dev/null || true
		kube-proxy --cleanup >/dev/null 2>&1 || true
		systemd-run -q --unit kube-proxy -p Restart=always -p RestartSec=5 /lab/bin/kube-proxy --proxy-mode "$1" \
			--kubeconfig /etc/kubernetes/proxy.conf --hostname-override "$(hostname)" --cluster-cidr "$2"
		END
	done
}

cluster_ip() { # MODE
	local from node seen
	proxy "$1"
	for from in $(web_pods | cut -d' ' -f1) self; do
		within 90 answers "$from" http://10.96.1.1/ n
		within 60 answers "$from" "http://[$(of service/web '.spec.clusterIPs[1]')]/" n
	done
	seen=$(for _ in {1..12}; do k exec self -- timeout 20 wget -qO- http://10.96.1.1/ | cut -d' ' -f1; done | sort -u | paste -sd' ')
	same "nodes that answer" 'n1 n2' "$seen"
	for node in n1 n2; do [[ $(vm "$node" 'curl -s -m 20 http://10.96.1.1/') == n* ]] || no "$node does not reach the service"; done
}

cluster_ip_to_oneself() {
	answers self http://10.96.1.2/ self
	answers self "http://[$(of service/self '.spec.clusterIPs[1]')]/" self
}

# What proxies leave when their tables go must be no rule of ours.
host_port_beside_proxy() {
	vm n1 'curl -s -m 20 http://127.0.0.1:18080/' | grep '^n1 '
	host_port
}

check web-on-both-nodes web_up
check pods-across-nodes across_nodes 3
check pods-across-nodes-ipv6 across_nodes 4
check dual-stack two_addresses
check host-port host_port
check host-network host_network
check dns-config dns_config
for mode in nftables iptables ipvs; do
	check "cluster-ip-$mode" cluster_ip $mode
	check "cluster-ip-to-oneself-$mode" cluster_ip_to_oneself
done
check host-port-beside-proxy host_port_beside_proxy
