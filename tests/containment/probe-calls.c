/* System calls that reach the kernel's inner parts, foreign entries, terminals. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL(name, ...)	   refused(#name, syscall(SYS_##name, __VA_ARGS__))
#define NEW(name, nr, ...) refused(name, syscall(nr, __VA_ARGS__))

static void inner_parts(void)
{
	char zero[256] = { 0 };

	CALL(mount, "none", "/tmp", "tmpfs", 0, NULL);
	CALL(umount2, "/proc", MNT_DETACH);
	CALL(pivot_root, ".", ".");
	CALL(unshare, CLONE_NEWNS);
	NEW("unshare-user", SYS_unshare, CLONE_NEWUSER);
	NEW("unshare-net", SYS_unshare, CLONE_NEWNET);
	NEW("unshare-all", SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID);
	NEW("open_tree", 428, AT_FDCWD, "/", 1 /* clone */);
	NEW("move_mount", 429, AT_FDCWD, "/tmp", AT_FDCWD, "/mnt", 0);
	NEW("fsopen", 430, "tmpfs", 0);
	NEW("fsopen-overlay", 430, "overlay", 0);
	NEW("fspick", 433, AT_FDCWD, "/", 0);
	NEW("mount_setattr", 442, AT_FDCWD, "/", 0, zero, 32);
	NEW("io_uring_setup", 425, 4, zero);
	CALL(bpf, 0, zero, 64);
	CALL(perf_event_open, zero, 0, -1, -1, 0);
	CALL(userfaultfd, 0);
	NEW("userfaultfd-user-mode", SYS_userfaultfd, 1);
	CALL(keyctl, 0, -3, 0, 0, 0);
	CALL(add_key, "user", "x", "y", 1, -3);
	CALL(request_key, "user", "x", NULL, -3);
	CALL(kexec_load, 0, 0, NULL, 0);
	CALL(init_module, zero, sizeof zero, "");
	CALL(finit_module, 0, "", 0);
	CALL(delete_module, "loop", 0);
	CALL(reboot, 0xfee1dead, 672274793, 0, NULL);
	CALL(swapon, "/tmp/swap", 0);
	CALL(swapoff, "/tmp/swap");
	CALL(acct, NULL);
	CALL(syslog, 3, zero, sizeof zero);
	CALL(sethostname, "x", 1);
	CALL(setdomainname, "x", 1);
	CALL(settimeofday, zero, NULL);
	CALL(clock_settime, 0, zero);
	CALL(quotactl, 0, NULL, 0, NULL);
	CALL(name_to_handle_at, AT_FDCWD, "/", zero, zero, 0);
	CALL(open_by_handle_at, AT_FDCWD, zero, 0);
	CALL(fanotify_init, 0, 0);
	CALL(vhangup, 0);
	CALL(kcmp, 1, 1, 0, 0, 0);
	NEW("memfd_secret", 447, 0);
#ifdef __x86_64__
	CALL(iopl, 3);
	CALL(ioperm, 0, 1, 1);
	CALL(modify_ldt, 0, zero, 16);
	CALL(uselib, "/bin/true");
#endif
	int ns = open("/proc/1/ns/mnt", O_RDONLY);
	if (ns < 0)
		ns = open("/proc/self/ns/mnt", O_RDONLY);
	CALL(setns, ns, 0);
	close(ns);
}

/* clone with namespaces, by the old call and by the new one; the child, should there be one, ends at once. */
static void namespaces_by_clone(void)
{
	static const struct {
		const char *name;
		unsigned long flag;
	} kinds[] = { { "clone-user", CLONE_NEWUSER },	   { "clone-mount", CLONE_NEWNS },
		      { "clone-net", CLONE_NEWNET },	   { "clone-pid", CLONE_NEWPID },
		      { "clone-ipc", CLONE_NEWIPC },	   { "clone-uts", CLONE_NEWUTS },
		      { "clone-cgroup", CLONE_NEWCGROUP }, { "clone-high-bits", 0x700000000UL | CLONE_NEWUSER } };
	unsigned long args[11] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };

	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		long rc = syscall(SYS_clone, kinds[i].flag | SIGCHLD, 0, 0, 0, 0);
		if (rc == 0)
			_exit(0);
		refused(kinds[i].name, rc);
	}
	long rc = syscall(435, args, sizeof args);
	if (rc == 0)
		_exit(0);
	verdict(rc < 0 && errno == ENOSYS, "clone3", "%ld errno %d, and not ENOSYS", rc, errno);
}

static int status_of(void (*body)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		body();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status;
}

#ifdef __x86_64__
/* Both ways must not reach a call: the mkdir below would leave a directory. */
static void x32_mkdir(void)
{
	syscall(0x40000000 | SYS_mkdir, "/tmp/probe-x32", 0755);
}

static void i386_mkdir(void)
{
	/* the path must be below 4 GiB for the 32-bit entry */
	char *low = (char *)syscall(SYS_mmap, 0x10000000UL, 4096UL, 3UL, 0x32UL, -1L, 0L);
	if ((long)low < 0)
		_exit(0);
	strcpy(low, "/tmp/probe-i386");
	long rc = 39; /* mkdir there */
	__asm__ volatile("int $0x80" : "+a"(rc) : "b"(low), "c"(0755) : "memory");
}

static void foreign_entries(void)
{
	int x32 = status_of(x32_mkdir), i386 = status_of(i386_mkdir);

	verdict(access("/tmp/probe-x32", F_OK) < 0 && WIFSIGNALED(x32), "x32-entry", "status %x", x32);
	verdict(access("/tmp/probe-i386", F_OK) < 0 && WIFSIGNALED(i386), "i386-entry", "status %x", i386);
}
#else
static void foreign_entries(void)
{
}
#endif

static void terminals(void)
{
	char byte = 'x';

	int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY);
	verdict(fd >= 0, "pty", "no terminal can be had: %s", strerror(errno));
	refused("TIOCSTI", syscall(SYS_ioctl, fd, 0x5412UL, &byte));
	verdict(syscall(SYS_ioctl, fd, 0x100005412UL, &byte) < 0 && errno == EPERM, "TIOCSTI-high-bits", "errno %d", errno);
	verdict(syscall(SYS_ioctl, fd, 0x8000000000005412UL, &byte) < 0 && errno == EPERM, "TIOCSTI-highest-bit", "errno %d", errno);
	verdict(syscall(SYS_ioctl, fd, 0x541cUL, &byte) < 0 && errno == EPERM, "TIOCLINUX", "errno %d", errno);
	verdict(syscall(SYS_ioctl, fd, 0x10000541cUL, &byte) < 0 && errno == EPERM, "TIOCLINUX-high-bits", "errno %d", errno);
	close(fd);
}

static void devices(void)
{
	static const struct {
		const char *name;
		unsigned major, minor;
	} nodes[] = { { "mknod-mem", 1, 1 },	{ "mknod-kmsg", 1, 11 },   { "mknod-null", 1, 3 },
		      { "mknod-kvm", 10, 232 }, { "mknod-fuse", 10, 229 }, { "mknod-whiteout", 0, 0 } };
	static const char *const absent[] = { "/dev/mem",	   "/dev/kmem",	   "/dev/port",	 "/dev/kvm",	    "/dev/fuse",
					      "/dev/loop-control", "/dev/loop0",   "/dev/vda",	 "/dev/sda",	    "/dev/kmsg",
					      "/dev/console",	   "/dev/net/tun", "/dev/vsock", "/dev/vhost-vsock" };
	char name[64];

	for (unsigned i = 0; i < sizeof nodes / sizeof *nodes; i++) {
		refused(nodes[i].name, mknod("/tmp/probe-node", S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)));
		unlink("/tmp/probe-node");
	}
	refused("mknod-block", mknod("/tmp/probe-node", S_IFBLK | 0666, makedev(8, 0)));
	for (unsigned i = 0; i < sizeof absent / sizeof *absent; i++) {
		snprintf(name, sizeof name, "device%s", absent[i]);
		refused(name, open(absent[i], O_RDONLY));
	}
	verdict(mkfifo("/tmp/probe-fifo", 0600) == 0, "fifo-allowed", "%s", strerror(errno));
	unlink("/tmp/probe-fifo");
}

void probe_calls(void)
{
	inner_parts();
	namespaces_by_clone();
	foreign_entries();
	terminals();
	devices();
	verdict(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "no_new_privs", "not set");
	verdict(prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2, "seccomp-on", "not on");
	refused("personality-read-implies-exec", syscall(SYS_personality, 0x0400000));
}
