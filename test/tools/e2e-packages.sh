#!/usr/bin/env bash
# The Debian packages that a cluster with kubelets needs: a container runtime, and the programs
# that kubelet, kube-proxy and the pods' network call.
#
#   e2e-packages.sh            installs missing packages
#   e2e-packages.sh --check    reports missing packages, and fails if any is missing, or without root
set -euo pipefail

# The programs, and the package of each. Debian has the plugins in /usr/lib/cni.
programs=(containerd:containerd runc:runc ip:iproute2 iptables:iptables
	dnsmasq:dnsmasq-base tar:tar /usr/lib/cni/bridge:containernetworking-plugins)

missing=()
for pair in "${programs[@]}"; do
	PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done

if [[ ${1:-} == --check ]]; then
	if ((EUID != 0)); then
		echo "a cluster with kubelets needs root: sudo make ..." >&2
		exit 1
	fi
	if ((${#missing[@]})); then
		echo "missing: ${missing[*]}. \`make e2e-packages\` installs them on Debian" >&2
		echo "(a container runtime of another vendor, such as Docker's, may be replaced by that)" >&2
		exit 1
	fi
	exit 0
fi

if ((${#missing[@]})); then
	echo "installing ${missing[*]}"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
