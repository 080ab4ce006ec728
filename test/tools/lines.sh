#!/usr/bin/env bash
# Counts lines of Go by folder, without generated files, and words of pages. `make lines`.
set -euo pipefail
cd "$(dirname "$0")/../.."

# go_files PATHSPEC... lists Go files that are not generated.
go_files() { git ls-files -- "$@" | grep '\.go$' | grep -v '/zz_generated' || true; }

# count prints how many lines the files named on standard input have.
count() { xargs -r cat | wc -l; }

# by_folder prints the lines of the files named on standard input, by the first two folders of their paths.
by_folder() {
	while IFS= read -r file; do printf '%s %s\n' "$(cut -d / -f 1-2 <<<"$file")" "$(wc -l <"$file")"; done |
		awk '{ n[$1] += $2 } END { for (f in n) printf "  %6d  %s\n", n[f], f }' | sort -k 2
}

product() { go_files bindata cmd manifests pkg | grep -v '_test\.go$'; }
tooling() { go_files test | grep -v '_test\.go$'; }
tests() { go_files . | grep '_test\.go$'; }
pages() { git ls-files '*.md'; }

for heading in product tooling tests; do
	echo "$heading"
	"$heading" | by_folder
done
printf '\n%d product, %d tooling, %d tests (%d of them below test/), %d words of pages\n' \
	"$(product | count)" "$(tooling | count)" "$(tests | count)" "$(tests | grep '^test/' | count)" "$(pages | xargs cat | wc -w)"
