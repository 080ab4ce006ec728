#!/bin/sh
# Prints the licence and notice files of what a program contains, for GOOS and GOARCH: of Go, of modules but for this
# one, and of what modules have copied, which are in the folders of its packages. For any shell, as in images with Go.
#
#   licenses.sh [-tags TAGS] PACKAGE
set -eu
export LC_ALL=C

std=$(go env GOVERSION)
goroot=$(go env GOROOT)
packages=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}|{{.Dir}}|{{$.Dir}}{{end}}{{end}}' "$@")
# Each package's folder, and those above it up to its module's, once.
folders=$({
	echo "std $std|$goroot|"
	echo "$packages" | while IFS='|' read -r module root dir; do
		while [ "$dir" != "$root" ]; do
			echo "$module|$root|${dir#"$root"}"
			dir=${dir%/*}
		done
		echo "$module|$root|"
	done
} | sort -u)

echo 'This program contains these modules, under the licences that follow their names.'
while IFS='|' read -r module root below; do
	found=
	for file in "$root$below"/LICENSE* "$root$below"/LICENCE* "$root$below"/COPYING* "$root$below"/NOTICE*; do
		if [ -e "$file" ]; then
			if [ -z "$found" ]; then printf '\n%s\n%s%s\n\n' ---------------------------------------- "$module" "$below"; fi
			found=yes
			cat "$file"
		fi
	done
	if [ -z "$found$below" ]; then
		echo "error: module $module has no licence file, so its program cannot be distributed" >&2
		exit 1
	fi
done <<END
$folders
END
