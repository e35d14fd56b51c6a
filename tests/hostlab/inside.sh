# In the machine of tests/hostlab/run, as root. Each part ends with a line "hostlab: ends NAME CODE".
cd /tmp || exit 1
echo "hostlab: kernel $(uname -r), $(grep -c ^processor /proc/cpuinfo) processors, up after $(cut -d' ' -f1 /proc/uptime) s"
echo "hostlab: cgroups: $(cat /sys/fs/cgroup/cgroup.controllers)"
part() {
	name=$1
	shift
	echo "hostlab: begins $name"
	"$@"
	echo "hostlab: ends $name $?"
}
. /mnt/parts.sh
