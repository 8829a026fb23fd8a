#!/bin/bash
# runtime-containerd.sh NAME [auto]: the reference of NODES, made to come back after
# a reboot and to give pods of a cluster both address families.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
name=${1:?usage: runtime-containerd.sh NAME [auto]}
socket=$("$NODES/runtime-containerd.sh" "$@")
script "$name" "${2:-}" "$socket" <<'END'
printf 'runtime-endpoint: %s\ntimeout: 60\n' "$2" >/etc/crictl.yaml
cp /run/systemd/transient/containerd.service /etc/systemd/system/
sed -i '/^\[Unit\]/a After=vmlab-init.service' /etc/systemd/system/containerd.service
ln -sf ../containerd.service /etc/systemd/system/multi-user.target.wants/
[ "$1" = auto ] || exit 0
cat >/etc/containerd/cni.template <<'EOT'
{"cniVersion":"1.0.0","name":"lab","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"promiscMode":false,"hairpinMode":true,
  "ipam":{"type":"host-local","ranges":[{{range $i, $r := .PodCIDRRanges}}{{if $i}},{{end}}[{"subnet":"{{$r}}"}]{{end}}],
   "routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
EOT
END
echo "$socket"
