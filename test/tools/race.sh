#!/usr/bin/env bash
# Prints -race where Go's race detector can be built, and nothing, with one line
# of explanation on stderr, where it cannot: it needs cgo, so a C compiler and
# the C library's headers.
set -euo pipefail

cc=$(go env CC)
# CC may hold flags as well, so it is split into words.
# shellcheck disable=SC2086
if printf '#include <stdlib.h>\n' | CGO_ENABLED=1 $cc -x c -fsyntax-only - >/dev/null 2>&1; then
	echo -race
else
	echo "no working C compiler ($cc), which Go's race detector needs: testing without -race" >&2
fi
