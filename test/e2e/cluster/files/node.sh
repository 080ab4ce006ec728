#!/bin/bash
# The first process of a node, in separate namespaces: NAME DIR CLUSTER ASSETS. It builds the node's root from the
# host's programs and DIR, prints ready, and reaps orphans, which become its children. Only SIGKILL ends it.
set -euo pipefail
name=$1 dir=$2 cluster=$3 assets=$4 root=$2/root

# bind FROM PATH [OPTIONS] mounts a folder of the host at a path of the node.
bind() {
	mkdir -p "$1" "$root$2"
	mount --bind -o "${3:-rw}" "$1" "$root$2"
}

# The mounts are visible only in this namespace.
mount --make-rprivate /
mkdir -p "$root"
mount -t tmpfs -o mode=755 tmpfs "$root"
for folder in /bin /sbin /lib /lib64 /usr; do
	if [ -L $folder ]; then
		cp --no-dereference $folder "$root"
	elif [ -d $folder ]; then
		bind $folder $folder ro
	fi
done
mkdir -p "$dir/etc" "$dir/etc.work" "$root"/{etc,proc,sys,dev,run,tmp,root,var/lib,.old}
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/etc,workdir=$dir/etc.work" overlay "$root/etc"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
ln -s /run "$root/var/run"
bind "$dir/kubelet" /var/lib/kubelet
bind "$dir/containerd" /var/lib/containerd
bind "$dir/etcd-data" /var/lib/etcd
bind "$dir/log" /var/log
bind "$dir/state" /var/lib/e2e
bind "$cluster/remote" /var/lib/e2e-remote
bind "$cluster/images" /opt/images ro
bind "$assets" /opt/e2e ro

pivot_root "$root" "$root/.old"
cd /
umount --lazy /.old
rmdir /.old
# Other mount namespaces must see the kubelet's volumes and the containers' roots.
mount --make-rshared /

echo "$name" >/proc/sys/kernel/hostname
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
ip link set lo up

trap '' TERM INT HUP
echo ready
while true; do
	sleep infinity
done
