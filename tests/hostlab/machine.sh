# A probe in a machine's jail, on pure cgroup v2.
image=$(grep -o 'sha256:[0-9a-f]*' /var/lib/caisson/images/refs.json | head -1)
id=11111111-2222-4333-8444-555555555555
mkdir -p /tmp/data
echo plain > /tmp/plain
{
	echo "start $id $image 128 1000 0 64"
	sleep 2
	echo "say $id report"
	echo "say $id grow"
	echo "say $id threads"
	sleep 1
	find /sys/fs/cgroup/caisson -name "$id" | sed 's/^/group /' >&2
	for f in memory.max cpu.max pids.max pids.peak memory.peak; do
		find /sys/fs/cgroup/caisson -path "*$id/$f" -exec sed "s/^/$f /" {} \; >&2
	done
	echo "say $id hog"
	for _ in $(seq 30); do
		echo "wait 1000"
		sleep 1
		grep -q "^event $id ended" /tmp/said && break
	done
	echo "end $id"
	sleep 1
} | /mnt/bin/drive-machine /var/lib/caisson/images /tmp/data /mnt/bin/probe-vmm /tmp/plain /tmp/plain > /tmp/said 2> /tmp/seen
cat /tmp/seen
grep -E "^(ok|error|event|call .*DONE|threads|status (Cap|Seccomp|NoNew)|cgroup|proc|uid_map)" /tmp/said
if grep -q "^ok oom" /tmp/said && ! grep -qE "^(error|call (fork|kill|mount|socket).*DONE|sees)" /tmp/said && [ -z "$(ls /sys/fs/cgroup | grep caisson)" ]; then
	echo "ok 1 - jail"
else
	echo "not ok 1 - jail"
fi
