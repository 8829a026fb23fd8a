#!/bin/bash
# runtime-crib.sh NAME: install crib in the VM as make install does, with runc and
# crictl, start its unit, import the test images, and print the CRI socket. The
# pod CIDRs are those that the kubelet hands down; CIDRS gives it some of its own.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
name=${1:?usage: runtime-crib.sh NAME}
[ -d "$VMEXTRA/root" ] || die "no root in $VMEXTRA: run.sh puts it there"
script "$name" "${CIDRS:-}" <<'END'
cidrs=$1
cp -a --remove-destination --no-preserve=ownership /extra/root/. /
install /lab/bin/crictl /usr/local/bin/
install /lab/bin/runc /usr/local/sbin/
mkdir -p /etc/crib
if [ "$cidrs" ]; then printf 'version = 1\n[network]\ncidrs = [%s]\n' "$cidrs" >/etc/crib/config.toml; fi
printf '%s\n' 'runtime-endpoint: unix:///run/crib/crib.sock' 'timeout: 60' >/etc/crictl.yaml
systemctl daemon-reload
systemctl enable -q --now crib
for image in pause busybox; do crib images import "/lab/images/$image.tar" >/dev/null 2>&1; done
echo unix:///run/crib/crib.sock
END
