# The limits of pure cgroup v2, as they are set, felt and told; and what is left of them.
n=0
export CAISSON_URL=http://127.0.0.1:4780
c=/mnt/bin/caisson
root=/sys/fs/cgroup

ok() { # NAME CONDITION...
	name=$1
	shift
	n=$((n + 1))
	if "$@"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name ($*)"
	fi
}
has() { # FILE TEXT
	[ "$(cat "$1")" = "$2" ] || { echo "$1: $(cat "$1")"; false; }
}
told() { # TEXT COMMAND...
	text=$1
	shift
	"$@" > /tmp/told 2>&1
	grep -qF -- "$text" /tmp/told || { cat /tmp/told; false; }
}
dying() { sed -n 's/nr_dying_descendants //p' $root/cgroup.stat; }
within() { [ "$1" -le "$2" ]; }
soon_gone() { # PATH
	for i in $(seq 100); do [ -e "$1" ] || return 0; sleep 0.1; done
	false
}

$c serve --data /tmp/groups-data --listen 127.0.0.1:4780 --boundary process --pool 0 > /tmp/serving 2> /tmp/log &
server=$!
while kill -0 $server 2>/dev/null && ! grep -q ^ready /tmp/serving; do sleep 0.2; done
grep -q ^ready /tmp/serving || { echo "not ok 1 - a server"; cat /tmp/log; exit 1; }
CAISSON_API_KEY=$(cat /tmp/groups-data/api-key)
export CAISSON_API_KEY

id=$($c create --memory 128m --cpus 0.5 --pids 64 --disk 256m)
g=$(find $root/caisson -maxdepth 2 -name "$id")
ok "memory.max" has "$g/memory.max" 134217728
ok "memory.swap.max" has "$g/memory.swap.max" 0
ok "cpu.max" has "$g/cpu.max" "50000 100000"
ok "pids.max" has "$g/pids.max" 64
ok "the guest is in it" grep -q . "$g/cgroup.procs"
ok "its limits are not the sandbox's to change" told "denied" $c exec "$id" sh -c 'echo max > /sys/fs/cgroup/memory.max || echo denied'
ok "too much memory is told as that" told '"oom":true' $c exec --json "$id" python3 -c 'x = b"x" * (300 << 20)'
ok "it is the sandbox's own group that was over" grep -q "oom_kill [1-9]" "$g/memory.events"
ok "and goes on" told "alive" $c exec "$id" echo alive
ok "too many processes are refused, and it goes on" told "refused" $c exec "$id" sh -c '(for i in $(seq 100); do sleep 60 & done) 2>/tmp/e; pkill sleep; grep -q fork /tmp/e && echo refused'
$c pause "$id"
ok "paused: frozen" grep -q "frozen 1" "$g/cgroup.events"
$c resume "$id"
ok "resumed: thawed" grep -q "frozen 0" "$g/cgroup.events"
ok "and goes on after that" told "alive" $c exec "$id" echo alive

# Page cache of a disk that stays must not keep the group of a stopped sandbox alive in the kernel.
before=$(dying)
wrote=0
for i in 1 2 3 4 5; do
	$c exec "$id" sh -c 'head -c 20000000 /dev/urandom > ~/file; cat ~/file > /dev/null' && wrote=$((wrote + 1))
	$c stop "$id"
	$c start "$id"
done
$c rm -f "$id"
ok "it wrote each time" [ $wrote = 5 ]
ok "no group is left" soon_gone "$g"
sleep 1
ok "nor one that is dying (before $before, now $(dying))" within "$(dying)" $((before + 1))
kill $server
wait $server
ok "nor a parent" soon_gone $root/caisson
rm -r /tmp/groups-data
