#!/usr/bin/env bash
# Builds one program of a tools module, once.
#
#   build.sh OUT MODULE_DIR PACKAGE [LDFLAGS [HOW_LONG]]
#
# The program gets its name only when it is whole, so an interrupted build is
# not mistaken for a complete one. Prints a line every 30 seconds, since go build
# prints nothing for minutes.
set -euo pipefail

out=$1 module=$2 package=$3 ldflags=${4:-} how_long=${5:-}
name=$(basename "$out")
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$name
partial=$out.partial.$$

echo "building $name from $package${how_long:+ (once; the first time $how_long)}"
start=$SECONDS
(
	# sleep outlives this loop: it must not keep the caller's output open.
	while sleep 30 >/dev/null 2>&1; do
		echo "  still building $name, $((SECONDS - start)) s"
	done
) &
ticker=$!
trap 'kill "$ticker" 2>/dev/null || true; rm -f "$partial"' EXIT

CGO_ENABLED=0 go build -C "$module" -trimpath -buildvcs=false \
	-ldflags "-s -w $ldflags" -o "$partial" "$package"
mv "$partial" "$out"
echo "built $name in $((SECONDS - start)) s"
