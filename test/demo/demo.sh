#!/usr/bin/env bash
# Shows kms-health-reporter at work with KMS plugins: real processes, no cluster, no root, no internet. Its exit code is
# 0 only if everything happened as shown. `make demo`.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly reporter=$PWD/bin/kms-health-reporter plugin=$PWD/bin/kms-plugin
dir=$(mktemp -d /tmp/kXXXXXX) # short: the path of a socket has at most 107 bytes
readonly dir
pids=() scene=0 seen=1 version=0

finish() {
	local status=$?
	if ((status != 0 && status != 130)); then tail -n 12 "$dir"/*.log "$dir/reports" >&2 || true; fi
	kill "${pids[@]}" 2>/dev/null || true
	wait || true
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

title() { printf '\n%d. %s\n' $((++scene)) "$1"; }

# show prints its input below a scene, without the temporary folder.
show() { sed "s,$dir,…,g; s,^,     ,"; }

# until_true WHAT COMMAND... waits until a command succeeds.
until_true() {
	local deadline=$((SECONDS + 30))
	until "${@:2}"; do
		if ((SECONDS > deadline)); then
			echo "demo: expected, but not seen within 30 s: $1" >&2
			exit 1
		fi
		sleep 0.05
	done
}

# reported STATES TEXT finds the first report that was not shown yet, and has KEY=STATUS of each plugin in this order,
# and the text.
reported() {
	local line states number=$seen
	while read -r line; do
		states=$(sed -E 's/\{[^{}]*"keyID":"([^"]*)"[^{}]*"status":"([^"]*)"[^{}]*\}/\1=\2/g' <<<"$line")
		if [[ $line == *"$2"* && $states == "[$1]" ]]; then
			report=$line seen=$((number + 1))
			return
		fi
		number=$((number + 1))
	done < <(tail -n "+$seen" "$dir/reports")
	return 1
}

# expect STATES [TEXT] waits for such a report, and shows it.
expect() {
	until_true "a report of $1 with '${2:-}'" reported "$1" "${2:-}"
	echo "${report//\},\{/$'},\n {'}" | show
}

logged() { grep -F -- "$1" "$dir/reporter.log"; }

# start_plugin KEY
start_plugin() {
	"$plugin" --endpoint "unix://$dir/kms-$1.sock" --state-dir "$dir/state-$1" --control "$dir/control-$1" \
		2>"$dir/plugin-$1.log" &
	pids+=($!)
	until_true "plugin $1 listens" "$plugin" ctl --control "$dir/control-$1" status >"$dir/state" 2>&1
}

# ctl KEY COMMAND...
ctl() {
	echo "   $ kms-plugin ctl --control …/control-$1 ${*:2}"
	"$plugin" ctl --control "$dir/control-$1" "${@:2}" >"$dir/state"
}

# configuration INTERVAL KEY:ROLE... prints the reporter's file.
configuration() {
	local p
	printf 'apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\n'
	printf 'probe: {interval: %s}\nplugins:\n' "$1"
	for p in "${@:2}"; do printf -- '- {endpoint: "unix://%s/kms-%s.sock", role: %s}\n' "$dir" "${p%:*}" "${p#*:}"; done
}

# configure writes its input as a kubelet writes the volume of a ConfigMap.
configure() {
	mkdir -p "$dir/config/..version-$((++version))"
	cat >"$dir/config/..version-$version/config.yaml"
	ln -s "..version-$version" "$dir/config/..data_tmp"
	mv -T "$dir/config/..data_tmp" "$dir/config/..data"
	ln -sf ..data/config.yaml "$dir/config/config.yaml"
}

cat <<'END'
kms-health-reporter runs beside an API server, checks the KMS plugins that encrypt
its Secrets, and reports their state on the operator resource. Here it watches
plugins that serve the real KMS v2 protocol on unix sockets, once a second, and
prints what it reports: a line of JSON for each round, here with a plugin a line.
END

title 'The reporter starts. There is no file yet and no plugin: it waits.'
"$reporter" --config "$dir/config/config.yaml" --node-name laptop --output - >"$dir/reports" 2>"$dir/reporter.log" &
readonly pid=$!
pids+=("$pid")
echo '   $ kms-health-reporter --config …/config/config.yaml --node-name laptop --output -'
until_true 'the log has that there is no file' logged 'No configuration file yet' >"$dir/found"
sed 's/^[^]]*] //' "$dir/found" | show

title 'Two plugins and a file that names them appear. Both plugins are healthy.'
start_plugin 1
start_plugin 2
configuration 1s 2:Write 1:Read | configure
echo '   $ cat …/config/config.yaml'
show <"$dir/config/config.yaml"
expect 2=healthy,1=healthy

title 'The vault behind plugin 2 is sealed: it answers that it is unhealthy. Then it is unsealed.'
ctl 2 unhealthy vault is sealed
expect 2=unhealthy,1=healthy 'vault is sealed'
ctl 2 heal
expect 2=healthy,1=healthy

title 'Plugin 1 crashes: there is no answer to judge. Then it returns.'
ctl 1 crash
expect 2=healthy,1=error 'connection refused'
ctl 1 heal
expect 2=healthy,1=healthy

title 'The remote key of plugin 2 is rotated: another KEK ID, which a key rotation waits for.'
ctl 2 rotate
expect 2=healthy,1=healthy '"key-2-'

title 'The file changes as the kubelet changes a ConfigMap: key 3 is added, key 1 is removed. No restart.'
start_plugin 3
echo '   $ ln -s ..version-2 ..data_tmp && mv -T ..data_tmp ..data'
configuration 1s 3:Write 2:Read | configure
expect 3=healthy,2=healthy

title 'An invalid file: the last valid one stays active.'
configuration 1ns 3:Write 2:Read | configure
until_true 'the log has that the file is rejected' logged 'Invalid value: \"1ns\"' >"$dir/found"
sed 's/^[^]]*] //' "$dir/found" | show
seen=$(($(wc -l <"$dir/reports") + 1))
expect 3=healthy,2=healthy

title 'SIGTERM ends it.'
kill "$pid"
wait "$pid"
echo "   It ended with exit code 0."

cat <<END

All of this happened as shown, in $SECONDS seconds.
Next: docs/quickstart/laptop.md explains how to run it on a plugin of yours, and
\`bin/kms-health-reporter --help\` lists its options.
END
