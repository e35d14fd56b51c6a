/* Files of the kernel and of the host: /proc, mounts, descriptors, what is masked. */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static void kernel_knobs(void)
{
	static const char *const knobs[] = {
		"/proc/sys/kernel/core_pattern",
		"/proc/sys/kernel/modprobe",
		"/proc/sys/kernel/hotplug",
		"/proc/sys/kernel/panic",
		"/proc/sys/kernel/hostname",
		"/proc/sys/vm/drop_caches",
		"/proc/sys/vm/overcommit_memory",
		"/proc/sys/fs/binfmt_misc/register",
		"/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/ipv4/ip_unprivileged_port_start",
		"/proc/sys/user/max_user_namespaces",
		"/proc/sys/kernel/ns_last_pid",
		"/proc/sysrq-trigger",
		"/proc/irq/default_smp_affinity",
		"/proc/bus/pci/devices",
		"/proc/mtrr",
		"/sys/kernel/uevent_helper",
		"/sys/fs/cgroup/release_agent",
		"/sys/fs/cgroup/memory/release_agent",
		"/sys/power/state",
		"/sys/kernel/mm/transparent_hugepage/enabled",
		"/proc/1/oom_score_adj_of_nobody",
	};
	char name[96];

	for (unsigned i = 0; i < sizeof knobs / sizeof *knobs; i++) {
		snprintf(name, sizeof name, "write%s", knobs[i]);
		/* sysrq-trigger is /dev/null here: what is written goes nowhere; the runner sees that the host lives */
		if (strcmp(knobs[i], "/proc/sysrq-trigger") == 0) {
			struct stat a, b;
			int same = stat(knobs[i], &a) == 0 && stat("/dev/null", &b) == 0 && a.st_rdev == b.st_rdev;
			verdict(same || access(knobs[i], F_OK) < 0 || write_file(knobs[i], "h") < 0, name, "can be written");
			continue;
		}
		refused(name, write_file(knobs[i], "1"));
	}
}

static ssize_t bytes_of(const char *path)
{
	char bytes[64];
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);

	if (fd >= 0)
		close(fd);
	return n;
}

static void masked(void)
{
	static const char *const files[] = {
		"allocinfo", "bootconfig",  "buddyinfo",   "cmdline",	   "config.gz",	 "consoles",	  "crypto",    "diskstats",
		"dma",	     "execdomains", "interrupts",  "iomem",	   "ioports",	 "kallsyms",	  "kcore",     "key-users",
		"keys",	     "kmsg",	    "kpagecgroup", "kpagecount",   "kpageflags", "latency_stats", "locks",     "mdstat",
		"misc",	     "modules",	    "mtrr",	   "pagetypeinfo", "partitions", "sched_debug",	  "schedstat", "slabinfo",
		"softirqs",  "swaps",	    "timer_list",  "vmallocinfo",  "vmcore",	 "zoneinfo",
	};
	static const char *const folders[] = { "acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "pressure", "scsi", "tty" };
	static const char *const needed[] = { "meminfo", "cpuinfo",	"stat",	   "vmstat",  "uptime",	     "loadavg",
					      "version", "filesystems", "devices", "cgroups", "self/status", "sys/kernel/osrelease" };
	char path[64], name[80];

	for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(path, sizeof path, "/proc/%s", files[i]);
		snprintf(name, sizeof name, "read%s", path);
		ssize_t n = bytes_of(path);
		verdict(n <= 0, name, "gave %zd bytes", n);
	}
	for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
		snprintf(path, sizeof path, "/proc/%s", folders[i]);
		snprintf(name, sizeof name, "list%s", path);
		DIR *dir = opendir(path);
		unsigned entries = 0;
		while (dir && readdir(dir))
			entries++;
		verdict(entries <= 2, name, "lists %u entries", entries);
		if (dir)
			closedir(dir);
	}
	for (unsigned i = 0; i < sizeof needed / sizeof *needed; i++) {
		snprintf(path, sizeof path, "/proc/%s", needed[i]);
		snprintf(name, sizeof name, "still-there%s", path);
		verdict(bytes_of(path) > 0, name, "says nothing");
	}
}

static void own_program(void)
{
	static const char *const paths[] = { "/proc/1/exe", "/proc/self/exe" };
	char name[64];

	for (unsigned i = 0; i < 2; i++) {
		/* Whoever may open it at all must not get it for writing. */
		snprintf(name, sizeof name, "overwrite%s", paths[i]);
		refused(name, open(paths[i], O_WRONLY | O_TRUNC));
	}
	int fd = open("/proc/1/exe", O_RDONLY);
	if (fd >= 0) {
		char again[40];
		snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
		refused("reopen-guest-for-writing", open(again, O_RDWR));
		refused("chmod-guest", fchmod(fd, 0777));
		close(fd);
	}
	DIR *dir = opendir("/proc");
	for (struct dirent *d; dir && (d = readdir(dir));) {
		char path[300];
		if (d->d_name[0] < '1' || d->d_name[0] > '9' || atoi(d->d_name) == getpid())
			continue;
		snprintf(path, sizeof path, "/proc/%s/exe", d->d_name);
		int w = open(path, O_WRONLY);
		if (w >= 0) {
			verdict(0, "overwrite-any-exe", "%s could be opened for writing", path);
			close(w);
		}
	}
	if (dir)
		closedir(dir);
}

static void descriptors(void)
{
	char path[40], target[256];
	int extra = 0;

	for (int fd = 3; fd < 4096; fd++) {
		struct stat st;
		if (fstat(fd, &st) == 0) {
			snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
			ssize_t n = readlink(path, target, sizeof target - 1);
			target[n < 0 ? 0 : n] = '\0';
			extra++;
		}
	}
	verdict(extra == 0, "descriptors", "%d more than 0, 1, 2; the last one is %s", extra, target);
	char *cwd = getcwd(NULL, 0);
	verdict(cwd && cwd[0] == '/', "working-directory", "%s", cwd ? cwd : strerror(errno));
	free(cwd);
	for (int fd = 0; fd < 10; fd++) {
		struct stat st;
		snprintf(path, sizeof path, "/proc/self/fd/%d/../../../etc", fd);
		if (stat(path, &st) == 0)
			verdict(0, "walk-from-descriptor", "%s is there", path);
	}
}

static void mounts(void)
{
	char line[1024], name[300], target[256];
	FILE *f = fopen("/proc/self/mounts", "r");

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%*s %255s", target) != 1)
			continue;
		snprintf(name, sizeof name, "remount-rw:%s", target);
		refused(name, mount(NULL, target, NULL, MS_REMOUNT | MS_BIND, NULL));
		snprintf(name, sizeof name, "umount:%s", target);
		refused(name, umount2(target, MNT_DETACH));
	}
	if (f)
		fclose(f);
	refused("write-dev", open("/dev/probe", O_CREAT | O_WRONLY, 0600));
	struct statfs st;
	verdict(statfs("/sys/fs/cgroup", &st) < 0 || st.f_type != 0x63677270, "no-cgroup-mount", "a cgroup tree is visible");
}

static void host_files(void)
{
	static const char *const paths[] = {
		"/run/caisson", "/var/lib/caisson", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
		"/.oldroot",	"/oldroot"
	};
	char name[64];

	for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
		snprintf(name, sizeof name, "absent%s", paths[i]);
		verdict(access(paths[i], F_OK) < 0, name, "is there");
	}
	/* Out by way of what is above a root that one has left (chroot's old trick) */
	int here = open("/", O_RDONLY | O_DIRECTORY);
	struct stat root, now;
	mkdir("/tmp/probe-root", 0755);
	if (stat("/", &root) == 0 && chroot("/tmp/probe-root") == 0) {
		int up = fchdir(here);
		for (int i = 0; i < 64; i++)
			up |= chdir("..");
		up |= stat(".", &now);
		verdict(up == 0 && now.st_dev == root.st_dev && now.st_ino == root.st_ino, "chroot-and-up", "another root was reached");
		up |= chroot(".");
	} else {
		verdict(1, "chroot-and-up", " ");
	}
	close(here);
	rmdir("/tmp/probe-root");
}

void probe_files(void)
{
	kernel_knobs();
	masked();
	own_program();
	descriptors();
	mounts();
	host_files();
}
