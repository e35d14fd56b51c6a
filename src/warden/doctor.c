#include "warden/doctor.h"

#include "sys/cgroup.h"
#include "sys/fs.h"
#include "sys/kvm.h"
#include "sys/loop.h"
#include "sys/mnt.h"
#include "sys/process.h"
#include "warden/gate.h"
#include "warden/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static struct doctor_line *add(struct doctor_report *r, const char *name, bool required, bool ok)
{
	struct doctor_line *l = &r->lines[r->n++];

	*l = (struct doctor_line){ .name = name, .ok = ok, .required = required };
	if (required && !ok)
		r->process_ok = false;
	return l;
}

/* Runs the trial in a child; returns 0 or the negative errno it ended with. */
static int try(int (*trial)(const char *images), const char *images)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int rc = trial(images);
		_exit(rc < 0 ? MIN(-rc, 255) : 0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EFAULT;
}

static int try_namespaces(const char *images)
{
	(void)images;
	return unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWNET) < 0 ? -errno : 0;
}

static int private_mounts(void)
{
	return unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

static int tmpfs_with(const char *const names[], size_t n)
{
	int fd = mnt_new("tmpfs", NULL, 0, NULL);

	for (size_t i = 0; fd >= 0 && i < n; i++)
		if (mkdirat(fd, names[i], 0755) < 0)
			return -errno;
	return fd;
}

/* On the file system that holds the images, or will: the folder itself need not be there yet. */
static int try_idmap(const char *images)
{
	char path[PATH_MAX];
	int rc = private_mounts();
	int userns = rc < 0 ? rc : process_userns(0x40000000u, 65536);
	if (userns < 0)
		return userns;
	if (images[0] != '/' || (size_t)snprintf(path, sizeof path, "%s", images) >= sizeof path)
		return -EINVAL;
	while (access(path, F_OK) < 0 && errno == ENOENT) {
		char *slash = strrchr(path, '/');
		slash[slash == path] = 0;
	}
	return mnt_idmapped(AT_FDCWD, path, userns, NULL);
}

/* As the warden does it: by descriptor, else by path. */
static int try_overlay(const char *images)
{
	static const char *const names[] = { "l", "u", "upper", "work" };
	(void)images;
	int rc = private_mounts();
	int base = rc < 0 ? rc : tmpfs_with(names, ARRAY_LEN(names));

	if (base < 0)
		return base;
	int lower = fs_open_dir_at(base, "l"), upper = fs_open_dir_at(base, "upper"), work = fs_open_dir_at(base, "work");
	if (mnt_overlay(lower, upper, work, false, NULL) >= 0)
		return 0;
	/* The folders of an attached tmpfs serve as scratch. /sys is everywhere and only ours here. */
	if (move_mount(base, "", AT_FDCWD, "/sys", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	int image = tmpfs_with(NULL, 0), disk = tmpfs_with(names, ARRAY_LEN(names));
	return image < 0 ? image : disk < 0 ? disk : mnt_overlay_by_path("/sys", image, disk, false, NULL);
}

static int try_seccomp(const char *images)
{
	(void)images;
	struct sock_filter allow = { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
	struct sock_fprog program = { 1, &allow };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		return -errno;
	return 0;
}

static int try_loop(const char *images)
{
	(void)images;
	unsigned number;
	int file = memfd_create("caisson-doctor", MFD_CLOEXEC);

	if (file < 0 || ftruncate(file, 1 << 20) < 0)
		return -errno;
	return loop_attach(file, &number);
}

static void judge(struct doctor_report *r, const char *name, int rc, const char *good, const char *advice)
{
	struct doctor_line *l = add(r, name, true, rc >= 0);

	if (rc >= 0) {
		snprintf(l->detail, sizeof l->detail, "%s", good);
		return;
	}
	snprintf(l->detail, sizeof l->detail, "not available: %s", strerror(-rc));
	snprintf(l->advice, sizeof l->advice, "%s", advice);
}

static void examine_root_only(struct doctor_report *r, const char *images)
{
	judge(r, "namespaces", try(try_namespaces, images), "user, pid, mount, network, ipc, uts, cgroup",
	      "set user.max_user_namespaces and the like above 0 (sysctl user); inside a container, allow them there");
	judge(r, "idmapped mounts", try(try_idmap, images), "the file system of the images can be idmapped",
	      "use a kernel of 5.15 or later and keep the images on ext4, xfs or btrfs");
	judge(r, "overlay", try(try_overlay, images), "with trusted attributes",
	      "load the kernel module \"overlay\" (modprobe overlay); inside a container, run on the host instead");
	judge(r, "seccomp", try(try_seccomp, images), "filters can be set", "use a kernel with CONFIG_SECCOMP_FILTER");
	judge(r, "loop devices", try(try_loop, images), "disks that outlive a stop can be made",
	      "load the kernel module \"loop\" (modprobe loop) and see that /dev/loop-control is there");
}

static void examine_taps(struct doctor_report *r)
{
	struct err why;
	bool ok = tap_probe(&why) == 0;
	struct doctor_line *l = add(r, "network devices of machines", false, ok);

	snprintf(l->detail, sizeof l->detail, "%.*s", (int)sizeof l->detail - 1, ok ? "taps can be made" : why.message);
	if (!ok)
		snprintf(l->advice, sizeof l->advice, "without them sandboxes of the vm boundary have no network; load the kernel module tun (modprobe tun)");
}

static void examine_gates(struct doctor_report *r)
{
	struct err why;
	bool ok = gate_probe(&why) == 0;
	struct doctor_line *l = add(r, "gates to the network", false, ok);

	snprintf(l->detail, sizeof l->detail, "%.*s", (int)sizeof l->detail - 1, ok ? "veth, and nftables with tproxy" : why.message);
	if (ok)
		examine_taps(r);
	else
		snprintf(l->advice, sizeof l->advice,
			 "without them sandboxes have no network (mode \"none\"); load the kernel modules veth, nf_tables and nft_tproxy (modprobe), "
			 "or use a kernel that has them");
}

static void examine_cgroups(struct doctor_report *r)
{
	struct cgroup_host h;
	struct err e;
	int rc = cgroup_detect(&h, &e);
	struct doctor_line *l = add(r, "cgroups", true, rc == 0);

	if (rc == 0) {
		snprintf(l->detail, sizeof l->detail, "%s", cgroup_kind_name(h.kind));
		return;
	}
	snprintf(l->detail, sizeof l->detail, "%.*s", (int)sizeof l->detail - 1, e.message);
	snprintf(l->advice, sizeof l->advice,
		 "boot with systemd.unified_cgroup_hierarchy=1, or mount the controllers; inside a container, "
		 "give it a writable cgroup tree with memory, cpu and pids");
}

static void examine_kvm(struct doctor_report *r)
{
	struct err why;
	bool ok = kvm_probe(KVM_DEVICE, &why) == 0;
	struct doctor_line *l = add(r, "KVM", false, ok);

	if (ok) {
		snprintf(l->detail, sizeof l->detail, "%s answers; whether machines come up with it, a server finds out with the first", KVM_DEVICE);
		return;
	}
	if (why.errnum == EACCES && geteuid() != 0)
		snprintf(l->detail, sizeof l->detail, "%s is there, and not for this user to try", KVM_DEVICE);
	else
		snprintf(l->detail, sizeof l->detail, "%.100s: machines are emulated, several times slower", why.message);
	snprintf(l->advice, sizeof l->advice, "%s", kvm_advice(why.errnum));
}

static void examine_apparmor(struct doctor_report *r)
{
	char text[8] = "";
	bool there = fs_read_at(AT_FDCWD, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", text, sizeof text) > 0;
	bool restricted = there && text[0] == '1';
	struct doctor_line *l = add(r, "AppArmor and user namespaces", false, !restricted);

	snprintf(l->detail, sizeof l->detail, "%s", !there ? "no such restriction" : restricted ? "restricted for ordinary users" : "not restricted");
	if (restricted)
		snprintf(l->advice, sizeof l->advice,
			 "no hindrance to a server that is started as root; to run without root, give the program a profile with "
			 "\"userns,\" or set kernel.apparmor_restrict_unprivileged_userns=0");
}

static void examine_inotify(struct doctor_report *r)
{
	uint64_t v = 0;
	bool ok = fs_read_u64_at(AT_FDCWD, "/proc/sys/fs/inotify/max_user_instances", NULL, &v) == 0 && v >= 1024;
	struct doctor_line *l = add(r, "inotify", false, ok);

	snprintf(l->detail, sizeof l->detail, "fs.inotify.max_user_instances = %llu, for all sandboxes together", (unsigned long long)v);
	if (!ok)
		snprintf(l->advice, sizeof l->advice, "with many sandboxes that watch files: sysctl -w fs.inotify.max_user_instances=65536");
}

/* What is not required is tried only for whoever asks. */
static void examine(struct doctor_report *r, const char *images, bool all)
{
	struct utsname u;
	bool root = geteuid() == 0;

	*r = (struct doctor_report){ .process_ok = true };
	struct doctor_line *l = add(r, "root", true, root);
	if (uname(&u) == 0)
		snprintf(l->detail, sizeof l->detail, "uid %u, Linux %.64s", (unsigned)geteuid(), u.release);
	if (root)
		examine_root_only(r, images);
	else
		snprintf(l->advice, sizeof l->advice,
			 "run it as root (sudo): the server gives root up in all but one small process. "
			 "What else this host can do is told to root only");
	examine_cgroups(r);
	if (root && all)
		examine_gates(r);
	examine_kvm(r);
	examine_apparmor(r);
	examine_inotify(r);
}

void doctor_examine(struct doctor_report *r, const char *images)
{
	examine(r, images, true);
}

int doctor_require_process(const char *images, struct err *e)
{
	struct doctor_report r;

	examine(&r, images, false);
	for (size_t i = 0; i < r.n; i++) {
		const struct doctor_line *l = &r.lines[i];
		if (l->required && !l->ok)
			return err_set(e, ERR_UNAVAILABLE, ENOSYS, "this host cannot give the process boundary: %s: %s. To do: %s", l->name,
				       l->detail, l->advice);
	}
	return 0;
}
