#!/usr/bin/env bash
# Prints -race if Go's race detector can be built. Otherwise it prints only one
# line of explanation, on stderr. The race detector needs cgo, so a C compiler
# and the C library's headers.
set -euo pipefail

cc=$(go env CC)
# CC is not quoted, since it may also have flags.
# shellcheck disable=SC2086
if printf '#include <stdlib.h>\n' | CGO_ENABLED=1 $cc -x c -fsyntax-only - >/dev/null 2>&1; then
	echo -race
else
	echo "no working C compiler ($cc), which Go's race detector needs: testing without -race" >&2
fi
