# For suites of cmocka programs: `program NAME COMMAND...` runs one and counts its TAP lines; one that crashes, or prints none, is a
# failure. A test that a kind of boundary cannot have is skipped by name; it counts neither way. `closing_line` ends the suite. In the environment: limit, in seconds (300).
passed=0 failed=0 skipped=0

program() {
	local name=$1 out status ok bad left
	shift
	if [ ! -x "$1" ] && [ "$1" != env ]; then
		echo "FAIL $name: not built"
		failed=$((failed + 1))
		return
	fi
	out=$(CMOCKA_MESSAGE_OUTPUT=TAP timeout "${limit-300}" "$@" 2>&1)
	status=$?
	ok=$(grep -c '^ok ' <<<"$out")
	bad=$(grep '^not ok ' <<<"$out" | grep -vc '^not ok [0-9]* # SKIP ')
	left=$(sed -n 's/^not ok [0-9]* # SKIP //p' <<<"$out" | paste -sd ' ')
	if [ "$status" != 0 ] || [ "$bad" != 0 ] || [ "$ok" = 0 ]; then
		echo "FAIL $name: exit $status, $ok ok, $bad not ok"
		grep -A 3 '^not ok ' <<<"$out" | grep -v '^ok ' # which may be far above what was said last
		grep -v '^ok ' <<<"$out" | tail -n 30
		[ "$bad" != 0 ] || bad=1
	else
		echo "ok $name: $ok${left:+, not for it: $left}"
	fi
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + $(wc -w <<<"$left")))
}

closing_line() {
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ]
}
