#!/bin/bash
# runtime-crib.sh NAME: install crib in the VM as a package would, with runc and
# crictl, start its unit, import the test images, and print the CRI socket. The
# pod CIDRs are those that the kubelet hands down; CIDRS gives it some of its own.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
name=${1:?usage: runtime-crib.sh NAME}
for file in crib crib-shim crib-init crib.service; do
	[ -e "$VMEXTRA/$file" ] || die "no $file in $VMEXTRA: run.sh puts it there"
done
script "$name" "${CIDRS:-}" <<'END'
cidrs=$1
install /extra/crib /extra/crib-shim /extra/crib-init /lab/bin/crictl /usr/local/bin/
install /lab/bin/runc /usr/local/sbin/
install -m 644 /extra/crib.service /etc/systemd/system/
mkdir -p /etc/crib
if [ "$cidrs" ]; then printf 'version = 1\n[network]\ncidrs = [%s]\n' "$cidrs" >/etc/crib/config.toml; fi
printf '%s\n' 'runtime-endpoint: unix:///run/crib/crib.sock' 'timeout: 60' >/etc/crictl.yaml
systemctl daemon-reload
systemctl enable -q --now crib
for image in pause busybox; do crib images import "/lab/images/$image.tar" >/dev/null 2>&1; done
echo unix:///run/crib/crib.sock
END
