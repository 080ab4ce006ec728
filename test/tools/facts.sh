#!/usr/bin/env bash
# Changes a fact of pkg/contract in a clone of HEAD, runs go generate, and checks that no other place states the fact:
# no file that is written by hand has to change, and only the tests of the fact fail. `make facts`.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The flags of `make test`, to use its build cache.
race=$(test/tools/race.sh)
if [[ -n $race ]]; then export CGO_ENABLED=1; fi
export GOFLAGS="$TEST_BUILD -tags=$TAGS $race"
readonly packages=(./pkg/contract ./pkg/rollup ./pkg/operatorstatus ./pkg/config/... ./pkg/operator/reportercontroller
	./pkg/operator/pluginhealthcontroller ./cmd/... ./test/docs)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# stale_factor makes reports valid for longer.
# shellcheck disable=SC2317  # mutate calls it by name, like resource
stale_factor() { sed -i 's/^const StaleIntervals = .*$/const StaleIntervals = 6/' pkg/contract/entry.go; }

# resource adds an operator resource as the last row of the table.
# shellcheck disable=SC2317
resource() {
	sed -i '/^var Resources = /,/^}$/s/^}$/\topenShift("etcds", "Etcd", nil, APIServer{Name: "etcd", Namespace: "openshift-etcd", ClusterOperator: "etcd"}),\n}/' \
		pkg/contract/resource.go
}

# by_hand copies a clone without generated files and lines.
by_hand() { # CLONE TO
	mkdir "$2"
	git -C "$1" archive "$(git -C "$1" stash create)" | tar -x -C "$2" \
		--exclude=pkg/config/v1alpha1/operator-openshift.yaml --exclude=zz_generated_reasons.go
	grep -rlZ 'BEGIN generated: ' "$2" | xargs -0 sed -i '/BEGIN generated: /,/END generated/d'
}

# mutate makes a change, and allows some tests to fail.
mutate() { # CHANGE TESTS
	local clone=$tmp/$1 failed
	git clone -q . "$clone"
	(cd "$clone" && "$1")
	if git -C "$clone" diff --quiet; then
		echo "$1 changes nothing: test/tools/facts.sh and pkg/contract differ"
		return 1
	fi
	by_hand "$clone" "$tmp/before"
	(cd "$clone" && go generate ./manifests && go build ./...) ||
		{ echo "$1: cannot be generated or built" && return 1; }
	by_hand "$clone" "$tmp/after"
	diff -r "$tmp/before" "$tmp/after" || { echo "$1: go generate changes what is written by hand" && return 1; }
	rm -r "$tmp/before" "$tmp/after"
	(cd "$clone" && go test -vet=off -ldflags=-s "${packages[@]}") >"$tmp/log" 2>&1 || true
	failed=$(grep -c '^--- FAIL' "$tmp/log" || true)
	echo "$1: $(git -C "$clone" diff --name-only | wc -l) files, 1 of them by hand; $failed tests fail, of $2 that may"
	grep -e '^ *--- FAIL' -e '^FAIL' -e '^panic' "$tmp/log" || true
	[[ $failed -le $2 ]] && grep -q '^ok' "$tmp/log" && ! grep -q -e 'build failed' -e '^panic' "$tmp/log"
}

mutate stale_factor 1 || status=1
mutate resource 0 || status=1
exit "$status"
