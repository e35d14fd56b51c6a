# Sourced: a server of its own in $tmp, its address in $port and its key in $key.
root=$(cd "$here/../.." && pwd)
bin=${CAISSON_BIN:-${CAISSON_BUILD:-$root/build}/src/bin/caisson}
tmp=$(mktemp -d)
chmod 711 "$tmp" # the server gives up root and must still reach its data
patience=1 # machines may be emulated
[ "${CAISSON_TEST_BOUNDARY:-process}" = process ] || patience=10
export TEST_PATIENCE=$patience CAISSON_ACCELERATOR="${CAISSON_ACCELERATOR:-emulated}"
server=
tidy() {
	[ -z "$server" ] || { kill -TERM "$server" 2>/dev/null || :; wait "$server" 2>/dev/null || :; }
	rm -rf "$tmp"
}
trap tidy EXIT
trap 'exit 1' INT TERM
: >"$tmp/ready"
"$bin" serve --ephemeral --boundary "${CAISSON_TEST_BOUNDARY:-process}" --data "$tmp/data" --listen 127.0.0.1:0 >"$tmp/ready" 2>"$tmp/log" &
server=$!
n=0
until grep -q '^ready ' "$tmp/ready"; do
	n=$((n + 1))
	if [ $n -gt 600 ] || ! kill -0 $server 2>/dev/null; then
		echo "the server did not come up:" >&2
		cat "$tmp/log" >&2
		exit 1
	fi
	sleep 0.1
done
port=$(sed -n 's/^ready .*:\([0-9]*\)$/\1/p' "$tmp/ready" | head -1)
key=$(cat "$tmp/data/api-key")
