#!/usr/bin/env bash
# Builds all files of a release in bin/release, from a git clone, without a container engine:
# archives of the programs, images, manifests with the images' digests, a bundle for OLM, the manifest of the kubectl
# plugin for krew, bills of materials and checksums. With the same version of Go, equal commits give equal files.
# `make release`.
#
#   release.sh VERSION REGISTRY ARCHITECTURE,... [dirty]
#
# RELEASE_BUILD is the Makefile's go build without -o, and TAGS has its tags. KUBEBUILDER_ASSETS has kubectl.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly version=$1 registry=$2
IFS=, read -ra architectures <<<"$3"
readonly dirty=${4:-} out=$PWD/bin/release all=(amd64 arm64 ppc64le s390x) home=github.com/kms-health/kms-health
readonly cyclonedx=$PWD/.tools/release/cyclonedx-gomod
readonly number='(0|[1-9][0-9]*)' identifier='(0|[1-9][0-9]*|[0-9]*[a-z-][0-9a-z-]*)'

# The environment or `go env -w` could change programs by these variables.
export GOFLAGS=-mod=readonly GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOPPC64=power8 LC_ALL=C

fail() { # CODE MESSAGE
	echo "error: $2" >&2
	exit "$1"
}

# In lower case, as names of objects require, and without build metadata, which image tags do not permit.
[[ $version =~ ^v$number\.$number\.$number(-$identifier(\.$identifier)*)?$ ]] ||
	fail 2 "version \"$version\" is not vMAJOR.MINOR.PATCH or vMAJOR.MINOR.PATCH-PRERELEASE"
[[ -z $(go env GOEXPERIMENT) ]] || fail 1 'GOEXPERIMENT is set: a release is built without experiments'
commit=$(git rev-parse HEAD)
at=$(git log -1 --no-show-signature --format=%ct)
time=$(date -u -d "@$at" +%Y-%m-%dT%H:%M:%SZ)
# The compiler also reads files that git ignores.
changes=$(git status --porcelain --untracked-files=all && git ls-files --others -- bindata cmd pkg)
[[ -z $changes || -n $dirty ]] ||
	fail 2 "the checkout has changes; commit them, or set DIRTY=1 for a build that is no release:"$'\n'"$changes"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
rm -rf "$out"
mkdir -p "$out"

# build PROGRAM OS ARCH FILE
build() {
	[[ -e $4 ]] || (export GOOS=$2 GOARCH=$3 && eval "$RELEASE_BUILD" -o "$4" "./cmd/$1")
}

# archive NAME FILE... writes OUT/NAME.tar.gz with files in the current folder: sorted, owned by root, all with one time.
archive() {
	tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$at" -c "${@:2}" |
		gzip -9n >"$out/$1.tar.gz"
}

# pack PROGRAM OS ARCH writes a program's archive and its bill of materials.
pack() {
	local name=$1_${version}_$2_$3 file=$1 dir=$tmp/$1-$2-$3
	echo "$1: packing for $2/$3"
	[[ $2 != windows ]] || file+=.exe
	mkdir "$dir"
	build "$1" "$2" "$3" "$tmp/programs/$2-$3/$file"
	cp "$tmp/programs/$2-$3/$file" LICENSE "$dir"
	GOOS=$2 GOARCH=$3 CGO_ENABLED=0 test/tools/licenses.sh -tags "$TAGS" "./cmd/$1" >"$dir/THIRD_PARTY_LICENSES"
	if [[ $1 != kms-health-reporter ]]; then # the reporter has no commands to complete
		cp -r "$tmp/completion/$1" "$dir/completion"
	fi
	if [[ $file == kubectl-kms_health ]]; then
		# kubectl calls this script to complete commands of the plugin.
		# shellcheck disable=SC2016
		printf '#!/bin/sh\nexec kubectl kms-health __complete "$@"\n' >"$dir/kubectl_complete-kms_health"
		chmod +x "$dir/kubectl_complete-kms_health"
	fi
	(cd "$dir" && archive "$name" -- *)
	GOPROXY=off "$cyclonedx" bin -json -licenses -assert-licenses -std -noserial -notimestamp -output-version 1.6 \
		-version "$version" -output "$out/$name.cdx.json" "$dir/$file" 2>"$tmp/log" || fail 1 "$(cat "$tmp/log")"
}

# completions PROGRAM
completions() {
	local shell dir=$tmp/completion/$1
	build "$1" '' '' "$tmp/host/$1"
	mkdir -p "$dir"
	for shell in bash fish zsh; do "$tmp/host/$1" completion "$shell" >"$dir/$1.$shell"; done
	"$tmp/host/$1" completion powershell >"$dir/$1.ps1"
}

# krew OS/ARCH... prints the kubectl plugin's manifest for an index of krew.
krew() {
	cat <<-END
		apiVersion: krew.googlecontainertools.github.com/v1alpha2
		kind: Plugin
		metadata:
		  name: kms-health
		spec:
		  version: $version
		  homepage: https://$home
		  shortDescription: Show the health of a cluster's KMS plugins
		  description: |
		    Shows the state of the KMS v2 plugins beside the API servers as a table, for each API server,
		    node and key, from the reports of kms-health-reporter. It reads with your own rights, or from
		    files of a must-gather, and writes nothing.
		  platforms:
	END
	local platform name
	for platform; do
		name=kubectl-kms_health_${version}_${platform/\//_}.tar.gz
		cat <<-END
			  - selector: {matchLabels: {os: ${platform%/*}, arch: ${platform#*/}}}
			    uri: https://$home/releases/download/$version/$name
			    sha256: $(sha256sum "$out/$name" | cut -d ' ' -f 1)
			    bin: kubectl-kms_health$([[ $platform != windows/* ]] || echo .exe)
		END
	done
}

go run ./test/tools/images --version "$version" --registry "$registry" --architectures "$3" \
	--programs "$tmp/programs" --out "$tmp/images" | tee "$tmp/images.log" | grep -v '^ '
# The manifests of the checkout, with the images by digest in components/images.
mkdir "$tmp/tree"
git ls-files -z -- manifests ':!*.go' | tar --null --files-from=- -c | tar -x -C "$tmp/tree"
for program in operator reporter; do
	mv "$tmp/images/kms-health-$program.tar" "$out/kms-health-${program}_${version}_image.tar"
	image=$(grep "/kms-health-$program@" "$tmp/images.log")
	sed -i "/^  newName: .*-$program\$/{s,: .*,: ${image%@*},;n;s,newTag: .*,digest: ${image#*@},}" \
		"$tmp/tree/manifests/components/images/kustomization.yaml"
done
(cd "$tmp/tree" && archive "kms-health_${version}_manifests" manifests)
"$KUBEBUILDER_ASSETS/kubectl" kustomize "$tmp/tree/manifests" >"$out/openshift.yaml"
"$KUBEBUILDER_ASSETS/kubectl" kustomize "$tmp/tree/manifests/kubernetes" >"$out/kubernetes.yaml"

go run ./test/tools/olm "${version#v}" "$time" "$3" "$tmp/olm" <"$out/openshift.yaml"
mv "$tmp"/olm/olm-*.yaml "$out"
(cd "$tmp/olm" && archive "kms-health-operator_${version}_olm-bundle" bundle bundle.Dockerfile)

completions kms-health-operator
completions kubectl-kms_health
plugins=()
for architecture in "${architectures[@]}"; do
	pack kms-health-operator linux "$architecture"
	pack kms-health-reporter linux "$architecture"
	plugins+=("linux/$architecture") # stored-keys runs on control-plane nodes, which have etcd's certificates
	case $architecture in
	amd64) plugins+=(darwin/amd64 windows/amd64) ;;
	arm64) plugins+=(darwin/arm64) ;;
	esac
done
for platform in "${plugins[@]}"; do pack kubectl-kms_health "${platform%/*}" "${platform#*/}"; done
krew "${plugins[@]}" >"$out/kms-health.yaml"
(cd "$out" && sha256sum -- * >"$tmp/sums" && mv "$tmp/sums" SHA256SUMS && echo && pwd && ls -sh)

echo "commit $commit of $time, $(go env GOVERSION)"
why=()
[[ -z $changes ]] || why+=('the checkout has changes')
git tag --points-at HEAD | grep -qxF "$version" || why+=("the commit has no tag $version")
[[ $registry != registry.invalid* ]] || why+=('no REGISTRY is set, so the manifests name images that cannot be pulled')
for architecture in "${all[@]}"; do
	[[ ,$3, == *,$architecture,* ]] || why+=("it has no programs for $architecture")
done
if ((${#why[@]})); then
	echo "THIS IS NO RELEASE of $version:"
	printf '  %s\n' "${why[@]}"
else
	echo "release $version: see docs/operate/release.md for the next steps"
fi
