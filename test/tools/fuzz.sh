#!/usr/bin/env bash
# Runs each fuzz target of this module for FUZZTIME (go can fuzz only one target
# of one package at a time).
set -euo pipefail

fuzztime=${FUZZTIME:-30s}
status=0
found=0
while IFS=: read -r file target; do
	found=$((found + 1))
	echo "fuzz: $target in $(dirname "$file"), for $fuzztime"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "./$(dirname "$file")" </dev/null || status=1
done < <(git ls-files -co --exclude-standard '*_test.go' |
	xargs -r grep -oHE '^func Fuzz[A-Za-z0-9_]*' | sed 's/:func /:/' | sort)
echo "fuzz: $found targets"
exit "$status"
