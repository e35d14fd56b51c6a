#include "warden/inside.h"

#include "sys/fs.h"
#include "sys/mnt.h"
#include "sys/process.h"
#include "sys/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What root inside keeps: enough for packages and services (chown, other users, low ports), nothing that reaches the kernel. */
#define CAP(x) (1ULL << (x))
#define KEPT                                                                                                                                         \
	(CAP(CAP_CHOWN) | CAP(CAP_DAC_OVERRIDE) | CAP(CAP_FOWNER) | CAP(CAP_FSETID) | CAP(CAP_KILL) | CAP(CAP_SETGID) | CAP(CAP_SETUID) |            \
	 CAP(CAP_NET_BIND_SERVICE) | CAP(CAP_SYS_CHROOT) | CAP(CAP_SETFCAP))

/* The server of volumes acts for any user of a machine on its files, as root of a sandbox can. */
#define KEPT_FOR_VOLUMES \
	(CAP(CAP_CHOWN) | CAP(CAP_DAC_OVERRIDE) | CAP(CAP_FOWNER) | CAP(CAP_FSETID) | CAP(CAP_SETGID) | CAP(CAP_SETUID))

/* Whom QEMU runs as inside: not the root of its user namespace, though that has no capability left either. */
#define VMM_ID 1000

enum { GO_WAIT_MS = 10000 };

static int check(long rc)
{
	return rc < 0 ? -errno : 0;
}

/* From here on the table is our own, and holds nothing of the warden's. */
static int own_descriptors(struct inside *in)
{
	(void)in;
	return check(syscall(SYS_close_range, INSIDE_END, ~0u, CLOSE_RANGE_UNSHARE));
}

/* Which may be killed before it has said it: what it had open is ours too, and the next one waits for its lock. (The time is for a death before the prctl.) */
static int wait_for_warden(struct inside *in)
{
	(void)syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	int rc = process_word_wait(&in->go, 0, GO_WAIT_MS);
	(void)syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
	return rc;
}

static int become_root(struct inside *in)
{
	(void)in;
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		return -errno;
	(void)syscall(SYS_setsid);
	(void)syscall(SYS_umask, 022);
	return 0;
}

/* Only now is it in all of its groups, and they become the roots of what it sees. */
static int enter_cgroup_namespace(struct inside *in)
{
	(void)in;
	return check(unshare(CLONE_NEWCGROUP));
}

/* Over the empty root of the stage (stage.h). To climb above the upper one leads back to it, and to take it off needs a right that
 * nobody here has. */
static int enter_root(struct inside *in)
{
	(void)in;
	if (move_mount(INSIDE_ROOT, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 || fchdir(INSIDE_ROOT) < 0)
		return -errno;
	return check(chroot("."));
}

/* A directory of the image to mount on. The image may have planted a symlink there, which is refused; one that is missing is made. */
static int mount_point(const char *name, mode_t mode)
{
	int fd = mnt_open_beneath(AT_FDCWD, name, O_PATH | O_DIRECTORY, false);

	if (fd != -ENOENT)
		return fd;
	if (mkdirat(AT_FDCWD, name, mode) < 0)
		return -errno;
	return mnt_open_beneath(AT_FDCWD, name, O_PATH | O_DIRECTORY, false);
}

static int mount_new_on(const char *type, const struct mnt_option *options, uint64_t attrs, int target)
{
	int fd = mnt_new(type, options, attrs, NULL);
	if (fd < 0)
		return fd;
	int rc = mnt_attach(fd, target);
	(void)close(fd);
	return rc;
}

static int mount_dev(struct inside *in)
{
	static const struct mnt_option pts[] = { { "newinstance", NULL }, { "ptmxmode", "0666" }, { "mode", "0620" }, { "gid", "5" }, { 0 } };
	const struct mnt_option shm[] = { { "mode", "1777" }, { "size", in->shm_size }, { 0 } };
	int target = mount_point("dev", 0755);

	if (target < 0)
		return target;
	int rc = mnt_attach(INSIDE_DEV, target);
	if (rc == 0 && (target = mnt_open_beneath(INSIDE_DEV, "pts", O_PATH | O_DIRECTORY, false)) < 0)
		rc = target;
	if (rc == 0)
		rc = mount_new_on("devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, target);
	if (rc == 0 && (target = mnt_open_beneath(INSIDE_DEV, "shm", O_PATH | O_DIRECTORY, false)) < 0)
		rc = target;
	if (rc == 0)
		rc = mount_new_on("tmpfs", shm, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, target);
	return rc;
}

/* What tells of the host, or reaches into it, and that programs can do without. meminfo, cpuinfo, stat, vmstat, uptime, loadavg,
 * version, filesystems, devices and cgroups stay. Others (slabinfo, kpageflags, ...) are refused to whoever is not the host's root. */
static const char *const hidden_files[] = {
	"bootconfig",  "buddyinfo",	"cmdline",  "config.gz", "consoles",	  "crypto",	"diskstats", "dma",
	"execdomains", "interrupts",	"iomem",    "ioports",	 "kallsyms",	  "kcore",	"key-users", "keys",
	"kmsg",	       "latency_stats", "locks",    "mdstat",	 "misc",	  "modules",	"mtrr",	     "partitions",
	"sched_debug", "schedstat",	"softirqs", "swaps",	 "sysrq-trigger", "timer_list", "vmcore",    "zoneinfo",
};
static const char *const hidden_folders[] = { "acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "pressure", "scsi", "tty" };

/* The working directory is the new /proc, and `with` an absolute path: neither it nor the names have symlinks in them by now.
 * Not there: nothing to hide. */
static int hide(const char *const names[], size_t n, const char *with)
{
	for (size_t i = 0; i < n; i++)
		if (mount(with, names[i], NULL, MS_BIND, NULL) < 0 && (errno != ENOENT || faccessat(AT_FDCWD, with, F_OK, 0) < 0))
			return -errno;
	return 0;
}

static int make_readonly(int proc, const char *name)
{
	int target = mnt_open_beneath(proc, name, O_PATH, false);
	int fd = target < 0 ? target : mnt_clone(proc, name, false);
	int rc = fd < 0 ? fd : mnt_readonly(fd, false);

	if (rc == 0)
		rc = mnt_attach(fd, target);
	if (fd >= 0)
		(void)close(fd);
	if (target >= 0)
		(void)close(target);
	return rc;
}

static int mount_proc(struct inside *in)
{
	int target = mount_point("proc", 0555);

	(void)in;
	if (target < 0)
		return target;
	int proc = mnt_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
	if (proc < 0)
		return proc;
	int rc = mnt_attach(proc, target);
	/* The filter refuses user namespaces; this is the second lock. Before /proc/sys becomes read-only. */
	if (rc == 0)
		rc = fs_write_at(proc, "sys/user/max_user_namespaces", "0");
	if (rc == 0)
		rc = make_readonly(proc, "sys");
	if (rc == 0)
		rc = check(fchdir(proc));
	if (rc == 0)
		rc = hide(hidden_files, ARRAY_LEN(hidden_files), "/dev/.nothing");
	if (rc == 0)
		rc = hide(hidden_folders, ARRAY_LEN(hidden_folders), "/dev/.empty");
	return rc < 0 ? rc : check(chdir("/"));
}

/* What programs expect of any system, if the image lacks it. /sys stays an empty directory. */
static int make_folders(struct inside *in)
{
	static const struct {
		const char *name;
		mode_t mode;
	} folders[] = { { "tmp", 01777 }, { "run", 0755 }, { "sys", 0555 } };

	(void)in;
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		if (mkdirat(AT_FDCWD, folders[i].name, 0700) == 0) {
			if (fchmodat(AT_FDCWD, folders[i].name, folders[i].mode, 0) < 0)
				return -errno;
		} else if (errno != EEXIST) {
			return -errno;
		}
	}
	return 0;
}

/* A folder at this path of the sandbox, made if it is missing. What the image and the disk have there is not ours to believe: no symlink
 * is followed. */
static int open_folder(const char *path)
{
	char name[256];
	int fd = openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (const char *p = path + 1; *p;) {
		size_t n = strcspn(p, "/");
		if (n == 0 || n >= sizeof name)
			return -EINVAL;
		memcpy(name, p, n);
		name[n] = '\0';
		int next = mnt_open_beneath(fd, name, O_PATH | O_DIRECTORY, true);
		if (next == -ENOENT)
			next = mkdirat(fd, name, 0755) < 0 ? -errno : mnt_open_beneath(fd, name, O_PATH | O_DIRECTORY, true);
		(void)close(fd);
		if (next < 0)
			return next;
		fd = next;
		p += n + (p[n] == '/');
	}
	return fd;
}

static int mount_volumes(struct inside *in)
{
	for (uint32_t i = 0; i < in->volumes_n; i++) {
		in->failed_at = in->volumes[i].path;
		int target = open_folder(in->volumes[i].path);
		int rc = target < 0 ? target : mnt_attach(INSIDE_VOLUME + (int)i, target);
		if (target >= 0)
			(void)close(target);
		if (rc < 0)
			return rc;
	}
	in->failed_at = NULL;
	return 0;
}

/* Only what QEMU finds its own descriptors by: nothing of the kernel's, and of processes only its own. */
static int mount_bare_proc(struct inside *in)
{
	static const struct mnt_option options[] = { { "subset", "pid" }, { "hidepid", "invisible" }, { 0 } };
	int target = mnt_open_beneath(AT_FDCWD, "proc", O_PATH | O_DIRECTORY, false);

	(void)in;
	return target < 0 ? target : mount_new_on("proc", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, target);
}

static int name_host(struct inside *in)
{
	return check(sethostname(in->hostname, strlen(in->hostname)));
}

static int set_rlimits(struct inside *in)
{
	struct rlimit files = { in->files_max, in->files_max }, core = { 0, 0 }, size = { in->file_bytes_max, in->file_bytes_max };

	if (in->kind == INSIDE_IS_VMM && syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &size, NULL) < 0)
		return -errno;
	if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &files, NULL) < 0 || syscall(SYS_prlimit64, 0, RLIMIT_CORE, &core, NULL) < 0)
		return -errno;
	return 0;
}

static int place_fds(struct inside *in)
{
	for (int fd = 0; fd < in->give_n; fd++)
		if (in->give[fd] >= 0 ? dup2(in->give[fd], fd) < 0 : close(fd) < 0 && errno != EBADF)
			return -errno;
	/* Everything of the warden's is close-on-exec already; this is the second lock. */
	return check(syscall(SYS_close_range, in->give_n, ~0u, CLOSE_RANGE_CLOEXEC));
}

static int drop_capabilities(struct inside *in)
{
	static const uint64_t kept_by[] = { [INSIDE_IS_GUEST] = KEPT, [INSIDE_IS_VMM] = 0, [INSIDE_IS_VOLUMES] = KEPT_FOR_VOLUMES };
	const uint64_t kept = kept_by[in->kind];
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = {
		{ (unsigned)(kept & 0xffffffff), (unsigned)(kept & 0xffffffff), 0 },
		{ (unsigned)(kept >> 32), (unsigned)(kept >> 32), 0 },
	};

	for (int cap = 0; cap <= in->last_cap; cap++)
		if (!(kept & CAP(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return -errno;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	/* a file's maker is set as the maker of files only, and takes no capability away */
	if (in->kind == INSIDE_IS_VOLUMES && prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED, 0, 0, 0) < 0)
		return -errno;
	if (in->kind == INSIDE_IS_VMM && (syscall(SYS_setresgid, VMM_ID, VMM_ID, VMM_ID) < 0 || syscall(SYS_setresuid, VMM_ID, VMM_ID, VMM_ID) < 0))
		return -errno;
	if (syscall(SYS_capset, &head, data) < 0)
		return -errno;
	return check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static int filter_calls(struct inside *in)
{
	return in->kind == INSIDE_IS_VMM ? seccomp_install_vmm() : in->kind == INSIDE_IS_VOLUMES ? seccomp_install_volumes() : seccomp_install();
}

static int run_guest(struct inside *in)
{
	static char *const no_env[] = { NULL };
	return check(syscall(SYS_execveat, INSIDE_GUEST, "", in->argv, no_env, AT_EMPTY_PATH));
}

static int run_vmm(struct inside *in)
{
	return check(syscall(SYS_execve, in->argv[0], in->argv, in->env));
}

struct step {
	const char *name;
	int (*run)(struct inside *in);
};

static const struct step guest_steps[] = {
	{ "take descriptors of its own", own_descriptors },
	{ "wait for the warden", wait_for_warden },
	{ "become root of the user namespace", become_root },
	{ "make a cgroup namespace", enter_cgroup_namespace },
	{ "enter the root", enter_root },
	{ "mount /dev", mount_dev },
	{ "mount /proc", mount_proc },
	{ "make folders", make_folders },
	{ "mount volumes", mount_volumes },
	{ "name the host", name_host },
	{ "set limits", set_rlimits },
	{ "place descriptors", place_fds },
	{ "drop capabilities", drop_capabilities },
	{ "filter system calls", filter_calls },
	{ "start the guest", run_guest },
	{ 0 },
};

static const struct step vmm_steps[] = {
	{ "take descriptors of its own", own_descriptors },
	{ "wait for the warden", wait_for_warden },
	{ "become root of the user namespace", become_root },
	{ "make a cgroup namespace", enter_cgroup_namespace },
	{ "enter the root", enter_root },
	{ "mount /proc", mount_bare_proc },
	{ "name the host", name_host },
	{ "set limits", set_rlimits },
	{ "place descriptors", place_fds },
	{ "drop capabilities", drop_capabilities },
	{ "filter system calls", filter_calls },
	{ "start QEMU", run_vmm },
	{ 0 },
};

static const struct step volumes_steps[] = {
	{ "take descriptors of its own", own_descriptors },
	{ "wait for the warden", wait_for_warden },
	{ "become root of the user namespace", become_root },
	{ "make a cgroup namespace", enter_cgroup_namespace },
	{ "enter the root", enter_root },
	{ "mount /proc", mount_bare_proc },
	{ "mount volumes", mount_volumes },
	{ "name the host", name_host },
	{ "set limits", set_rlimits },
	{ "place descriptors", place_fds },
	{ "drop capabilities", drop_capabilities },
	{ "filter system calls", filter_calls },
	{ "start the server of volumes", run_guest },
	{ 0 },
};

int inside_main(void *arg)
{
	static const struct step *const steps_of[] = { [INSIDE_IS_GUEST] = guest_steps, [INSIDE_IS_VMM] = vmm_steps, [INSIDE_IS_VOLUMES] = volumes_steps };
	struct inside *in = arg;

	for (const struct step *s = steps_of[in->kind]; s->run; s++) {
		int rc = s->run(in);
		if (rc < 0) {
			in->failed_errno = -rc;
			in->failed = s->name;
			break;
		}
	}
	syscall(SYS_exit_group, 70);
	return 70;
}
