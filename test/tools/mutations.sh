#!/usr/bin/env bash
# Changes conditions, bounds and arithmetic of pure packages, one at a time, and prints for each package how many of these
# mutants its own tests kill: `make mutations`.
#
#   mutations.sh GREMLINS [PACKAGE...]     all pure packages, or these
set -euo pipefail
cd "$(dirname "$0")/../.."

gremlins=$(realpath "$1")
shift
packages=("$@")
if ((!$#)); then
	packages=(pkg/contract pkg/rollup pkg/operator/apiserver pkg/operator/objects pkg/operator/encryption
		pkg/reporter/probe pkg/config/v1alpha1)
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git clone -q . "$tmp/clone" # gremlins copies the folder for each worker, .tools too
cd "$tmp/clone"

for package in "${packages[@]}"; do
	"$gremlins" unleash --tags "$TAGS" --timeout-coefficient 20 --output-statuses lt "./$package" >"$tmp/log"
	sed -n 's/^ *\(LIVED\|TIMED OUT\)/  \1/p' "$tmp/log"
	awk -v package="$package" -F '[:,] *' '
		/^Killed:/ { killed = $2; lived = $4; uncovered = $6 }
		END { all = killed + lived + uncovered
			printf "%s: %.1f %% killed (%d of %d, %d lived, %d not covered)\n",
				package, all ? 100 * killed / all : 0, killed, all, lived, uncovered }' "$tmp/log"
done
