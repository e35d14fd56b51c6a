# In the machine of tests/hostlab/run, as root. Each part ends with a line "hostlab: NAME CODE".
cd /mnt
cp -n lib/* /usr/lib/x86_64-linux-gnu/
for f in host/*; do cp -r "$f/." "/${f#host/}"; done
ip link set lo up 2>/dev/null
echo "hostlab: kernel $(uname -r), $(grep -c ^processor /proc/cpuinfo) processors"
echo "hostlab: cgroups: $(cat /sys/fs/cgroup/cgroup.controllers)"
part() {
	name=$1
	shift
	"$@"
	echo "hostlab: $name $?"
}
. ./parts.sh
