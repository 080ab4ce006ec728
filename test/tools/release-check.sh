#!/usr/bin/env bash
# Builds a release of the checked-out commit in two clones, and compares the files: `make release-check`.
#
#   release-check.sh [ARCHITECTURES]     Go's names, separated by commas
#
# The second clone is shallow, in a longer path, and has another umask, time zone, language and CPU level,
# and an empty build cache.
set -euo pipefail
cd "$(dirname "$0")/../.."

architectures=${1:-amd64}
root=$PWD
if [[ -n $(git status --porcelain) ]]; then
	echo "release-check: the checkout has changes, which clones do not have; only the commit is checked" >&2
fi
tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp" && rm -rf "$tmp"' EXIT

# release CLONE [VARIABLE=VALUE...]
release() {
	mkdir "$1/.tools" && ln -s "$root"/.tools/cluster-* "$1/.tools/" && cp -r "$root/.tools/release" "$1/.tools/"
	(cd "$1" && env "${@:2}" make --no-print-directory release VERSION=v0.0.0-check \
		REGISTRY=registry.example.com/kms-health ARCHITECTURES="$architectures")
}

git clone -q "$root" "$tmp/a"
mkdir -p "$tmp/another/folder"
git clone -q --depth 1 "file://$root" "$tmp/another/folder/b"

start=$SECONDS
release "$tmp/a"
echo "release-check: the first took $((SECONDS - start)) s"
start=$SECONDS
(
	umask 077
	release "$tmp/another/folder/b" TZ=Asia/Kathmandu LC_ALL=tr_TR.UTF-8 LANG=tr_TR.UTF-8 \
		GOAMD64=v3 GOCACHE="$tmp/cache"
)
echo "release-check: the second, with an empty cache, took $((SECONDS - start)) s"

a=$tmp/a/bin/release b=$tmp/another/folder/b/bin/release
(cd "$a" && sha256sum --quiet -c SHA256SUMS)
if ! diff -r "$a" "$b"; then
	echo "release-check: the two differ"
	exit 1
fi
if grep -rlaF -e "$tmp" "$a"; then
	echo "release-check: these files have the path of the clone in them"
	exit 1
fi
echo "release-check: the same $(find "$a" -type f | wc -l) files from two clones"
sha256sum "$a/SHA256SUMS" | cut -d ' ' -f 1
