#!/usr/bin/env bash
# Installs missing dependencies of the plugins in test/languages: Debian's packages, as root, and Node's packages in the
# lock file, into a folder.
#
#   languages.sh DIR
set -euo pipefail

missing=()
/usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null || missing+=(python3-grpcio python3-protobuf)
command -v npm >/dev/null || missing+=(nodejs npm)
if ((${#missing[@]})); then
	if ((EUID != 0)); then
		echo "missing: ${missing[*]}. On Debian \`sudo make test-languages\` installs them" >&2
		exit 1
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

lock=test/languages/testdata/package-lock.json
if ! cmp -s "$lock" "$1/node_modules/lock"; then
	mkdir -p "$1"
	cp "$lock" "${lock%-lock.json}.json" "$1"
	(cd "$1" && npm ci --ignore-scripts --no-audit --no-fund)
	cp "$lock" "$1/node_modules/lock"
fi
