#!/usr/bin/env bash
# Runs the static checks, and the commands of the README: `make verify`. All steps run, even if others fail.
#
#   verify.sh [STEP...]     all steps, or these
#
# A step is a function check_NAME. If it finds a problem, it prints it and returns 1. If it
# cannot run here, it prints why, in one line, and returns 77. The script tests the status of
# a step, which disables errexit inside the step. So steps chain their commands with &&.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly lint=$PWD/.tools/lint bundle=$PWD/.tools/bundle/bundle
readonly promtool=$PWD/.tools/prometheus/promtool
readonly cannot=77
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

steps=(gofmt shellcheck workflows traces boundaries methods rules docs commands bundle mod-tidy
	mod-verify vet vet-integration staticcheck golangci-lint generated govulncheck)

# Lists the files in the repository, and new files that git does not ignore.
files() { # PATTERN...
	git ls-files -co --exclude-standard -z -- "$@" |
		while IFS= read -r -d '' file; do
			if [[ -f $file ]]; then printf '%s\0' "$file"; fi
		done
}

modules() {
	files 'go.mod' '*/go.mod' | xargs -0 -n 1 dirname
}

check_gofmt() {
	local unformatted
	unformatted=$(files '*.go' | xargs -0r gofmt -s -l 2>&1)
	if [[ -n $unformatted ]]; then
		printf 'not formatted (make fmt):\n%s\n' "$unformatted"
		return 1
	fi
}

check_shellcheck() {
	if ! command -v shellcheck >/dev/null; then
		echo "not installed (Debian: apt-get install shellcheck; Fedora: dnf install ShellCheck)"
		if [[ ${CI:-} == true ]]; then return 1; fi
		return "$cannot"
	fi
	local file scripts=()
	while IFS= read -r -d '' file; do
		if [[ $(head -c 64 "$file" | head -n 1 | tr -d '\0') =~ ^'#!'.*[/\ ](ba|da)?sh($|\ ) ]]; then
			scripts+=("$file")
		fi
	done < <(files)
	shellcheck -- "${scripts[@]}"
}

# Checks the files in .github, and that dependabot knows all modules.
check_workflows() {
	"$lint/actionlint" || return 1
	local module
	for module in $(modules); do
		if ! grep -qE "^  directories: .*[[ ]/${module#.}[],]" .github/dependabot.yml; then
			echo ".github/dependabot.yml: $module is missing"
			return 1
		fi
	done
}

# The project can be fetched and built anywhere, so no file may name the host of
# a registry or a folder of one machine. (The brackets keep these patterns from
# matching themselves.)
check_traces() {
	local hosts='(proxy|sum)[.]golang[.]org|docker[.]io|quay[.]io|gcr[.]io|ghcr[.]io|mcr[.]microsoft[.]com'
	hosts+='|public[.]ecr[.]aws|registry[.](k8s|redhat|access|npmjs)[.]|([a-z]+)[.]debian[.]org|pypi[.]org'
	local folders='(^|[^[:alnum:]_.}-])/([w]ork|[r]oot|[h]ome|[U]sers)/'
	! files | xargs -0 grep -nIE "$hosts|$folders"
}

# Each row has packages, and then packages that they must not link, directly or indirectly. All
# packages below these are forbidden too, except for the packages of the row themselves, the contract, and
# the packages after "but". A path that begins with a folder of the repository's root is in this module.
boundaries() {
	cat <<-'END'
		./pkg/... ./cmd/... ./bindata/...  test
		./pkg/...                          cmd
		./pkg/operator/...                 pkg/reporter
		./pkg/reporter/...                 pkg/operator
		./pkg/contract                     pkg cmd bindata
		./pkg/config/...                   pkg cmd bindata
		./bindata                          pkg cmd
		./pkg/serverclock                  pkg cmd bindata
		./pkg/operatorstatus                   pkg cmd bindata
		./pkg/rollup                       pkg cmd bindata but pkg/operatorstatus
		./pkg/operator/objects             pkg/operator but pkg/operator/tlsprofile
		./pkg/operator/render              pkg/operator/reportercontroller pkg/operator/pluginhealthcontroller pkg/operator/informers
		./pkg/operator/delivery ./pkg/operator/ssa ./pkg/operator/informers pkg/operator/reportercontroller pkg/operator/pluginhealthcontroller pkg/operator/clusteroperatorcontroller
		./pkg/operator/reportercontroller  pkg/operator/pluginhealthcontroller pkg/operator/clusteroperatorcontroller
		./pkg/operator/pluginhealthcontroller pkg/operator/reportercontroller pkg/operator/clusteroperatorcontroller
		./pkg/operator/clusteroperatorcontroller pkg/operator/reportercontroller pkg/operator/pluginhealthcontroller
		./cmd/kubectl-kms_health           pkg/operator pkg/reporter
		./cmd/kms-health-reporter          pkg/operator github.com/openshift/client-go k8s.io/api k8s.io/apiserver
		./cmd/kms-health-reporter          k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/client-go
		./cmd/kms-health-reporter ./cmd/kubectl-kms_health github.com/openshift/library-go
		./pkg/... ./cmd/kms-health-operator ./cmd/kms-health-reporter  go.etcd.io go.uber.org/zap
		./...                              sigs.k8s.io/controller-runtime
	END
}

check_boundaries() {
	local module row word forbidden allowed packages linked breaches status=0
	module=$(go list -m) || return 1
	while read -r row; do
		packages=() forbidden='' allowed="$module/pkg/contract"
		local to=forbidden
		for word in $row; do
			case $word in
			./*)
				packages+=("$word")
				word=${word%/...}
				allowed+="|$module/${word#./}"
				continue
				;;
			but) to=allowed && continue ;;
			pkg* | cmd* | bindata | test) word=$module/$word ;;
			esac
			if [[ $to == allowed ]]; then allowed+="|$word"; else forbidden+="|$word"; fi
		done
		linked=$(go list -deps "${packages[@]}") || return 1
		breaches=$(grep -E "^(${forbidden#|})(/|\$)" <<<"$linked" | grep -vE "^($allowed)(/|\$)" || true)
		if [[ -n $breaches ]]; then
			printf '%s\nlinks\n%s\n' "$row" "$breaches"
			status=1
		fi
	done < <(boundaries)
	return "$status"
}

# If a reachable function calls methods by names that the linker does not know, as text/template does, the linker keeps
# all exported methods of all types: 19 MB of the operator. <ReflectMethod> marks such a function. The last -ldflags
# wins.
check_methods() {
	local program
	for program in cmd/*; do
		eval "$BUILD -ldflags=-dumpdep -o $tmp/program ./$program" 2>"$tmp/links" &&
			grep -q '^main[.]main -> ' "$tmp/links" && ! grep -m 1 '<ReflectMethod>$' "$tmp/links" || return 1
	done
}

# Runs promtool on the rules, and its linter on the operator's metrics: tests of `make test` that need no cluster. Here,
# and in the other steps that run tests, -count 1 is needed: go's cache does not know which files a program read.
check_rules() {
	if [[ ! -x $promtool ]]; then
		echo "there is no promtool: make promtool"
		return "$cannot"
	fi
	go test -count 1 ./test/monitoring ./pkg/operator ./pkg/operator/pluginhealthcontroller
}

# Checks the links, commands, flags and names in the pages, and compares the references with the
# code. The step generated checks generated references, and the step rules checks alerts and
# metrics. This step builds the programs, for their --help.
check_docs() { go test -count 1 -timeout 30m ./test/docs ./cmd/kubectl-kms_health; }

# Runs the commands in README.md and in the quickstarts.
check_commands() {
	if [[ ! -x ${KUBEBUILDER_ASSETS:-}/kube-apiserver ]]; then
		echo "there is no kube-apiserver: make verify ONLY=commands"
		return "$cannot"
	fi
	go test -count 1 -timeout 30m -run TestCommandsOf ./test/docs -commands
}

# Checks the bundle for OLM with the validators of the Operator Framework.
check_bundle() {
	"$KUBEBUILDER_ASSETS/kubectl" kustomize manifests |
		go run ./test/tools/olm 0.0.1 1970-01-01T00:00:00Z amd64 "$tmp/olm" &&
		"$bundle" "$tmp/olm/bundle"
}

check_mod-tidy() {
	local module status=0
	for module in $(modules); do
		if ! go -C "$module" mod tidy -diff; then
			echo "$module: go.mod or go.sum is not tidy"
			status=1
		fi
	done
	return "$status"
}

check_mod-verify() { modules | xargs -P "$(nproc)" -I MODULE go -C MODULE mod verify; }

check_vet() { go vet ./...; }
check_vet-integration() { go vet -tags integration,e2e ./...; }
check_staticcheck() { "$lint/staticcheck" -tags integration,e2e ./...; }
check_golangci-lint() { "$lint/golangci-lint" run; }

# Runs go generate in a copy, and compares.
check_generated() {
	mkdir "$tmp/before" "$tmp/after" &&
		files | tar --null --files-from=- -cf "$tmp/files.tar" &&
		tar -xf "$tmp/files.tar" -C "$tmp/before" &&
		tar -xf "$tmp/files.tar" -C "$tmp/after" &&
		(cd "$tmp/after" && go generate ./...) || return 1
	if ! diff -ruN "$tmp/before" "$tmp/after"; then
		echo "generated files are not up to date (make generate)"
		return 1
	fi
}

# Uses the public database, or the mirror that GOVULNDB names.
check_govulncheck() {
	local scan=("$lint/govulncheck") status=0
	if [[ -n ${GOVULNDB:-} ]]; then scan+=(-db "$GOVULNDB"); fi
	# Check with an empty program, in seconds, whether the database is reachable.
	mkdir "$tmp/probe"
	printf 'module probe\n\ngo 1.26.0\n' >"$tmp/probe/go.mod"
	printf 'package main\n\nfunc main() {}\n' >"$tmp/probe/main.go"
	timeout 30 "${scan[@]}" -C "$tmp/probe" ./... >"$tmp/probe/log" 2>&1 || status=$?
	if [[ $status == 124 ]] || grep -q 'fetching vulnerabilities' "$tmp/probe/log"; then
		echo "the vulnerability database was not reachable"
		return "$cannot"
	fi
	timeout 600 "${scan[@]}" ./...
}

if (($#)); then steps=("$@"); fi
failed=() passed=0 undone=0
for step in "${steps[@]}"; do
	if ! declare -F "check_$step" >/dev/null; then
		echo "verify: no step is called $step" >&2
		exit 2
	fi
	status=0
	"check_$step" >"$tmp/log" 2>&1 || status=$?
	case $status in
	0)
		passed=$((passed + 1))
		echo "verify: $step ok"
		;;
	"$cannot")
		undone=$((undone + 1))
		echo "verify: $step not done: $(cat "$tmp/log")"
		;;
	*)
		failed+=("$step")
		cat "$tmp/log"
		echo "verify: $step FAILED"
		;;
	esac
done

echo "verify: $passed ok, ${#failed[@]} failed, $undone not done${failed[*]:+; failed: ${failed[*]}}"
((${#failed[@]} == 0))
