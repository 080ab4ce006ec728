#!/bin/sh
# Prints the licence and notice files for the code in a program, for GOOS and GOARCH: of Go, of its modules without this
# one, and of code that modules have copied, in the folders of its packages. For any shell, since it runs in images with
# Go.
#
#   licenses.sh [-tags TAGS] PACKAGE
set -eu
export LC_ALL=C

std=$(go env GOVERSION)
goroot=$(go env GOROOT)
packages=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}|{{.Dir}}|{{$.Dir}}{{end}}{{end}}' "$@")
# The folder of each package, and its parents up to the folder of its module, without duplicates.
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
