#!/usr/bin/env bash
# Builds programs of a tools module.
#
#   build.sh DIR MODULE_DIR LDFLAGS HOW_LONG NAME=PACKAGE...
#
# One go build builds all of them, so it links one program while it compiles another. The files
# get their names only when they are complete, so that an interrupted build leaves no program.
# Prints a line every 30 seconds, since go build prints nothing for minutes.
set -euo pipefail

dir=$1 module=$2 ldflags=$3 how_long=$4
shift 4
names=("${@%%=*}") packages=("${@#*=}")
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
partial=$dir/.partial.$$
mkdir "$partial"

echo "building ${names[*]} (once; the first time $how_long)"
start=$SECONDS
(
	# The sleep may live longer than this loop, and must not keep the caller's output open.
	while sleep 30 >/dev/null 2>&1; do
		echo "  still building, $((SECONDS - start)) s"
	done
) &
ticker=$!
trap 'kill "$ticker" 2>/dev/null || true; rm -rf "$partial"' EXIT

# Without debug information, compiling takes a twelfth less time.
CGO_ENABLED=0 go build -C "$module" -trimpath -buildvcs=false -gcflags=all=-dwarf=false \
	-ldflags "-s -w $ldflags" -o "$partial/" "${packages[@]}"
for i in "${!names[@]}"; do
	# go build names a program after its package, without a suffix like /v3.
	mv "$partial/$(basename "${packages[i]%/v[0-9]}")" "$dir/${names[i]}"
done
echo "built ${names[*]} in $((SECONDS - start)) s"
