#!/bin/bash
# vm.sh start NAME..: VMs whose disk survives and is written as the guest says, and
#                     that come back after a reset; fresh ones with FRESH=1
# vm.sh cut NAME      a power cut: reset without sync; with KILL=1 the machine itself
#                     is killed, with what it had not yet written, and started again
# vm.sh stop NAME..   end these VMs only
set -euo pipefail
. "$(dirname "$0")/lib.sh"
set -e

qemu=(qemu-system-x86_64)
if [ -d "$VMLAB/qemu" ]; then
	qemu=("$VMLAB/qemu/usr/bin/qemu-system-x86_64" -L "$VMLAB/qemu/usr/share/qemu" -L "$VMLAB/qemu/usr/share/seabios")
fi
case $VMACCEL in
kvm) accel=(-accel kvm -cpu host) ;;
*) accel=(-accel "tcg,thread=multi,tb-size=1024" -cpu "${VMCPU:-Westmere}") ;;
esac

share() { echo "local,path=$1,mount_tag=$2,security_model=none,readonly=on,multidevs=remap"; }

# boot NAME starts the machine; its disk is made if there is none.
boot() {
	local name=$1 dir=$VMLAB/$1 ip number append
	ip=$(vmip "$name") number=$(vmnum "$name")
	[ -z "${FRESH:-}" ] || rm -rf "$dir"
	mkdir -p "$dir"
	rm -f "$VMLAB/$ip.ssh" "$dir/pid"
	[ -f "$dir/disk.qcow2" ] || qemu-img create -q -f qcow2 -b "$VMLAB/base.img" -F raw "$dir/disk.qcow2"
	append="console=ttyS0 loglevel=4 rw net.ifnames=0 mitigations=off nokaslr panic=5 init_on_alloc=0"
	append+=" systemd.hostname=$name vmlab.ip=$ip ${VMAPPEND:-}"
	inlab bash -c "ip link del tap$number 2>/dev/null; ip tuntap add tap$number mode tap && ip link set tap$number master br0 up"
	inlab setsid "${qemu[@]}" "${accel[@]}" -machine q35 -smp "$VMCPUS" -m "$VMMEM" \
		-nodefaults -no-user-config -display none -pidfile "$dir/pid" \
		-kernel "$VMLAB/vmlinuz" -initrd "$VMLAB/initrd" -append "$append" \
		-drive "file=$dir/disk.qcow2,if=virtio,cache=writeback,aio=threads" \
		-netdev "tap,id=net0,ifname=tap$number,script=no,downscript=no" \
		-device "virtio-net-pci,netdev=net0,romfile=,mac=$(printf '52:54:00:77:00:%02x' "$number")" \
		-virtfs "$(share "$VMSHARE" lab)" -virtfs "$(share "$VMEXTRA" extra)" \
		-device virtio-rng-pci -serial "file:$dir/serial.log" -monitor "unix:$dir/monitor,server,nowait" \
		</dev/null >"$dir/qemu.log" 2>&1 &
}

# reach NAME waits until it answers, with another boot id than OLD if one is given.
reach() {
	local name=$1 old=${2:-none} dir=$VMLAB/$1 now tries
	for tries in {1..300}; do
		now=$(vmssh "$name" -o ConnectTimeout=5 'cat /proc/sys/kernel/random/boot_id' 2>/dev/null) &&
			[ "$now" ] && [ "$now" != "$old" ] && return
		[ "$tries" -lt 5 ] || alive "$dir/pid" "$dir" || die "$name ended: $(tail -n 3 "$dir/qemu.log")"
		drop "$name"
		sleep 1
	done
	die "$name not reachable: see $dir/serial.log"
}

# drop NAME forgets the connection to a machine that is no more.
drop() {
	local socket
	socket=$VMLAB/$(vmip "$1").ssh
	[ ! -S "$socket" ] || inlab timeout 5 ssh -q -o "ControlPath=$socket" -O exit x 2>/dev/null || true
	rm -f "$socket"
}

start() {
	local name
	[ -s "$VMLAB/base.img" ] || die "no image in $VMLAB: run build.sh of $NODES"
	net_up
	for name in "$@"; do
		[ -z "${FRESH:-}" ] || stop "$name"
		alive "$VMLAB/$name/pid" "$VMLAB/$name" || boot "$name"
	done
	for name in "$@"; do reach "$name"; done
}

cut() {
	local name=$1 dir=$VMLAB/$1 old
	old=$(vmssh "$name" cat /proc/sys/kernel/random/boot_id)
	if [ -n "${KILL:-}" ]; then
		kill -9 "$(cat "$dir/pid")"
		while alive "$dir/pid" "$dir"; do sleep 0.1; done
		drop "$name"
		FRESH='' boot "$name"
	else
		socat - "unix:$dir/monitor" <<<system_reset >/dev/null
		drop "$name"
	fi
	reach "$name" "$old"
}

stop() {
	local name
	for name in "$@"; do
		drop "$name"
		stop_pid "$VMLAB/$name/pid" "$VMLAB/$name" 10
		rm -f "$VMLAB/$name/disk.qcow2"
	done
}

case ${1:-} in
start | cut | stop) "$@" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
