/* First program of the machine that tests/hostlab/run boots: makes a root of the default image and what came in the initramfs, with
 * control groups of version 2 only, runs inside.sh there, and turns the machine off. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int rc, const char *what)
{
	if (rc < 0)
		printf("hostlab: %s: %s\n", what, strerror(errno));
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_modules(void)
{
	struct dirent **names;
	int n = scandir("/modules", &names, NULL, by_name);

	for (int i = 0; i < n; i++) {
		char path[300];
		if (names[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/modules/%s", names[i]->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		check((int)syscall(SYS_finit_module, fd, "", 0), path);
		close(fd);
	}
}

/* Mounts the disk with that serial number at /NAME. */
static void mount_disk(const char *name)
{
	char path[64], disk[16], serial[32] = "";

	for (char letter = 'a'; letter <= 'z'; letter++) {
		snprintf(path, sizeof path, "/sys/block/vd%c/serial", letter);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, serial, sizeof serial - 1);
		if (fd >= 0)
			close(fd);
		if (n != (ssize_t)strlen(name) || strncmp(serial, name, strlen(name)) != 0)
			continue;
		snprintf(disk, sizeof disk, "/dev/vd%c", letter);
		snprintf(path, sizeof path, "/%s", name);
		mkdir(path, 0755);
		check(mount(disk, path, "erofs", MS_RDONLY, NULL), name);
		return;
	}
	printf("hostlab: there is no disk \"%s\"\n", name);
}

static void make_root(void)
{
	mkdir("/sys", 0755);
	check(mount("sysfs", "/sys", "sysfs", 0, NULL), "sysfs");
	mount_disk("images");
	mount_disk("lab");
	mkdir("/rw", 0755);
	check(mount("tmpfs", "/rw", "tmpfs", 0, NULL), "tmpfs");
	mkdir("/rw/u", 0755);
	mkdir("/rw/w", 0755);
	mkdir("/new", 0755);
	/* Not an overlay over all of it: the root has to be a file system that can be idmapped. Where both have a library, the image's is taken. */
	check(mount("/images/root", "/new", NULL, MS_BIND, NULL), "root");
	check(mount("overlay", "/new/usr", "overlay", 0, "lowerdir=/images/root/usr:/lab/usr,upperdir=/rw/u,workdir=/rw/w"), "overlay");
	check(mount("/lab", "/new/mnt", NULL, MS_BIND, NULL), "/lab");
	check(mount("tmpfs", "/new/var/lib", "tmpfs", 0, NULL), "/var/lib");
	mkdir("/new/var/lib/caisson", 0755);
	mkdir("/new/var/lib/caisson/images", 0755);
	check(mount("/images", "/new/var/lib/caisson/images", NULL, MS_BIND, NULL), "images");
	check(mount("proc", "/new/proc", "proc", 0, NULL), "proc");
	check(mount("sysfs", "/new/sys", "sysfs", 0, NULL), "sysfs");
	check(mount("debugfs", "/new/sys/kernel/debug", "debugfs", 0, NULL), "debugfs");
	check(mount("devtmpfs", "/new/dev", "devtmpfs", 0, NULL), "devtmpfs");
	check(mount("cgroup2", "/new/sys/fs/cgroup", "cgroup2", 0, NULL), "cgroup2");
	check(mount("tmpfs", "/new/tmp", "tmpfs", 0, NULL), "/tmp");
	check(mount("tmpfs", "/new/run", "tmpfs", 0, NULL), "/run");
	check(chdir("/new"), "chdir");
	check(mount(".", "/", NULL, MS_MOVE, NULL), "move");
	check(chroot("."), "chroot");
	check(chdir("/"), "chdir");
}

/* The image has no program for it. */
static void loopback_up(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	check(ioctl(fd, SIOCSIFFLAGS, &lo), "loopback");
	close(fd);
}

int main(void)
{
	char *argv[] = { "sh", "/mnt/inside.sh", NULL };
	char *env[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", NULL };
	int status = 0;

	mkdir("/dev", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	int console = open("/dev/console", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(console, fd);
	load_modules();
	make_root();
	loopback_up();
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		execve("/bin/sh", argv, env);
		_exit(127);
	}
	for (pid_t one; (one = wait(&status)) != pid;)
		if (one < 0 && errno == ECHILD)
			break;
	printf("hostlab: over, status %d\n", status);
	fflush(stdout);
	sync();
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}
