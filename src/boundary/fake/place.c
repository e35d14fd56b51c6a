#include "boundary/fake/place.h"

#include "base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is taken from the host as it is; a link (merged /usr) is copied as one. */
static const char *const from_host[] = { "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32" };

static const struct {
	const char *path;
	mode_t mode;
} directories[] = {
	{ "etc", 0755 },      { "dev", 0755 }, { "proc", 0755 },      { "root", 0700 }, { "home", 0755 }, { "home/user", 0755 },
	{ "tmp", 01777 },     { "var", 0755 }, { "var/tmp", 01777 },  { "run", 0755 },  { "etc/alternatives", 0755 },
};

static const struct {
	const char *path, *text;
} files[] = {
	{ "etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
	                "user:x:1000:1000:user:/home/user:/bin/bash\n" },
	{ "etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\nuser:x:1000:\nextra:x:2000:user\n" },
	{ "etc/hosts", "127.0.0.1 localhost\n::1 localhost\n" },
};

static int write_file(int dir, const char *path, const char *text)
{
	auto_fd int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -EIO;
}

static int copy_links(int root)
{
	char target[256], host[64];
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(from_host); i++) {
		snprintf(host, sizeof host, "/%s", from_host[i]);
		if (lstat(host, &st) < 0)
			continue;
		if (S_ISDIR(st.st_mode) && mkdirat(root, from_host[i], 0755) < 0)
			return -errno;
		ssize_t n = S_ISLNK(st.st_mode) ? readlink(host, target, sizeof target - 1) : -1;
		if (n < 0)
			continue;
		target[n] = '\0';
		if (symlinkat(target, root, from_host[i]) < 0)
			return -errno;
	}
	return 0;
}

static int fill(int root)
{
	for (size_t i = 0; i < ARRAY_LEN(directories); i++)
		if (mkdirat(root, directories[i].path, 0755) < 0 || fchmodat(root, directories[i].path, directories[i].mode, 0) < 0)
			return -errno;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		int r = write_file(root, files[i].path, files[i].text);
		if (r < 0)
			return r;
	}
	if (geteuid() == 0)
		return fchownat(root, "home/user", 1000, 1000, 0) < 0 ? -errno : copy_links(root);
	return copy_links(root);
}

int place_make(const char *dir, struct err *e)
{
	auto_free char *path = xasprintf("%s/root", dir);

	if (mkdir(dir, 0700) < 0)
		return err_sys(e, errno == EEXIST ? ERR_CONFLICT : ERR_UNAVAILABLE, errno, "cannot make %s", dir);
	int r = mkdir(path, 0755) < 0 ? -errno : 0;
	auto_fd int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0)
		r = root < 0 ? -errno : fill(root);
	if (r < 0) {
		(void)place_remove(dir, NULL);
		return err_sys(e, ERR_UNAVAILABLE, -r, "cannot fill %s", path);
	}
	return 0;
}

int place_copy(const char *from, const char *to, struct err *e)
{
	auto_free char *source = xasprintf("%s/root", from);
	char cp[] = "cp", options[] = "-a", sparse[] = "--sparse=always", path[] = "PATH=/usr/bin:/bin", *env[] = { path, NULL };
	auto_free char *target = xasprintf("%s/", to);
	char *argv[] = { cp, options, sparse, source, target, NULL };
	int status;
	pid_t pid;

	if (access(source, F_OK) < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "cannot copy %s", source);
	if (mkdir(to, 0700) < 0)
		return err_sys(e, errno == EEXIST ? ERR_CONFLICT : ERR_UNAVAILABLE, errno, "cannot make %s", to);
	int rc = posix_spawnp(&pid, cp, NULL, NULL, argv, env);
	while (rc == 0 && waitpid(pid, &status, 0) < 0)
		rc = errno == EINTR ? 0 : errno;
	if (rc == 0 && status == 0)
		return 0;
	(void)place_remove(to, NULL);
	return err_set(e, ERR_UNAVAILABLE, rc ? rc : EIO, "cannot copy %s", source);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_DNR)
		return chmod(path, 0700) < 0 && errno != ENOENT; /* and once more: see place_remove */
	return remove(path) < 0 && errno != ENOENT && errno != ENOTEMPTY;
}

int place_remove(const char *dir, struct err *e)
{
	struct stat st;

	for (int i = 0; i < 64; i++) {
		if (lstat(dir, &st) < 0)
			return 0;
		if (nftw(dir, remove_one, 64, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0)
			break;
	}
	return lstat(dir, &st) < 0 ? 0 : err_sys(e, ERR_UNAVAILABLE, errno ? errno : ENOTEMPTY, "cannot remove %s", dir);
}

static uint64_t counted; /* nftw has no argument for its callback */
static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	counted += type == FTW_NS ? 0 : (uint64_t)st->st_blocks * 512;
	return 0;
}

uint64_t place_bytes(const char *dir)
{
	auto_free char *path = xasprintf("%s/root", dir);

	counted = 0;
	(void)nftw(path, count_one, 64, FTW_PHYS | FTW_MOUNT);
	return counted;
}

/* --- start: a child that unshares, and its child that is PID 1 --- */

#define CAP(name) (1ull << CAP_##name)
#define KEPT_CAPS \
	(CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) | CAP(KILL) | CAP(SETGID) | CAP(SETUID) | \
	 CAP(NET_BIND_SERVICE) | CAP(SYS_CHROOT) | CAP(SETFCAP))

struct report { /* through a pipe that exec closes; several may come */
	char step[40];
	int errnum; /* 0: `pid` is PID 1 */
	pid_t pid;
};

static void __attribute__((noreturn)) report_failure(int fd, const char *step)
{
	struct report r = { .errnum = errno ? errno : EIO };

	snprintf(r.step, sizeof r.step, "%s", step);
	(void)!write(fd, &r, sizeof r);
	_exit(1);
}

static bool map_ids(uid_t uid, gid_t gid)
{
	char text[64];

	if (write_file(AT_FDCWD, "/proc/self/setgroups", "deny") < 0)
		return false;
	snprintf(text, sizeof text, "0 %u 1", uid);
	if (write_file(AT_FDCWD, "/proc/self/uid_map", text) < 0)
		return false;
	snprintf(text, sizeof text, "0 %u 1", gid);
	return write_file(AT_FDCWD, "/proc/self/gid_map", text) == 0;
}

static bool bind_mount(const char *host, const char *name)
{
	struct stat st;

	if (lstat(host, &st) < 0 || !S_ISDIR(st.st_mode))
		return true; /* not there, or a link that was copied */
	return mount(host, name, NULL, MS_BIND | MS_REC, NULL) == 0;
}

static const char *mount_all(void)
{
	char host[64];

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return "private mounts";
	for (size_t i = 0; i < ARRAY_LEN(from_host); i++) {
		snprintf(host, sizeof host, "/%s", from_host[i]);
		if (!bind_mount(host, from_host[i]))
			return from_host[i];
	}
	if (!bind_mount("/etc/alternatives", "etc/alternatives") || !bind_mount("/dev", "dev"))
		return "dev";
	return NULL;
}

static void __attribute__((noreturn)) become_guest(int pipe, int guest, const char *hostname)
{
	char host[80], name[] = "caisson-guest", user[] = "user=0:0";
	char *argv[] = { name, user, host, NULL }, *env[] = { NULL };

	snprintf(host, sizeof host, "hostname=%.64s", hostname);
	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		report_failure(pipe, "mount proc");
	if (chroot(".") < 0 || chdir("/") < 0)
		report_failure(pipe, "chroot");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		if (null < 0 || dup2(null, i) < 0)
			report_failure(pipe, "/dev/null");
	/* what the warden leaves too: without CAP_SYS_PTRACE, say, PID 1 keeps its secrets from root inside */
	for (unsigned cap = 0; cap < 64; cap++)
		if (!(KEPT_CAPS >> cap & 1))
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	(void)syscall(SYS_execveat, guest, "", argv, env, AT_EMPTY_PATH);
	report_failure(pipe, "exec the guest");
}

static void __attribute__((noreturn)) set_up(int pipe, int guest, int listener, const char *root, const char *hostname)
{
	bool privileged = geteuid() == 0;
	uid_t uid = geteuid();
	gid_t gid = getegid();

	/* numbers that the guest's 3 and 4 can't be in the way of */
	pipe = fcntl(pipe, F_DUPFD_CLOEXEC, 10);
	guest = fcntl(guest, F_DUPFD_CLOEXEC, 10);
	listener = fcntl(listener, F_DUPFD_CLOEXEC, 10);
	if (chdir(root) < 0)
		report_failure(pipe, "enter the root");
	if (unshare(CLONE_NEWNS | CLONE_NEWPID | (privileged ? 0 : CLONE_NEWUSER)) < 0)
		report_failure(pipe, "namespaces (root, or user namespaces for users, are needed)");
	if (!privileged && !map_ids(uid, gid))
		report_failure(pipe, "map ids");
	const char *failed = mount_all();
	if (failed)
		report_failure(pipe, failed);
	if (dup2(listener, 3) < 0)
		report_failure(pipe, "descriptor 3");
	(void)close(4);
	/* nothing else of the daemon's may live on in the sandbox */
	(void)syscall(SYS_close_range, 5, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
	(void)setsid();
	pid_t pid = fork();
	if (pid < 0)
		report_failure(pipe, "fork");
	if (pid == 0)
		become_guest(pipe, guest, hostname);
	struct report r = { .pid = pid };
	_exit(write(pipe, &r, sizeof r) == sizeof r ? 0 : 1);
}

static int address_of(const char *dir, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	int n = snprintf(a->sun_path, sizeof a->sun_path, "%s/sock", dir);
	return n < 0 || (size_t)n >= sizeof a->sun_path ? -ENAMETOOLONG : 0;
}

static int listen_in(const char *dir)
{
	struct sockaddr_un a;
	int r = address_of(dir, &a);
	auto_fd int fd = r < 0 ? r : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (r < 0)
		return r;
	(void)unlink(a.sun_path);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 64) < 0)
		return -errno;
	return take_fd(&fd);
}

static uint64_t start_time(pid_t pid)
{
	auto_buf struct buf b;
	char path[48];

	buf_init(&b, 4096);
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *to = buf_reserve(&b, 2048);
	ssize_t n = fd < 0 ? -1 : read(fd, to, 2048);
	if (n <= 0)
		return 0;
	buf_grew(&b, (size_t)n);
	const char *at = strrchr(b.data, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

/* Reads what the child and its child have to say: a failure ends it, else the pid. */
static pid_t hear(int pipe, struct err *e)
{
	struct report r;
	pid_t pid = -ECHILD;

	while (read(pipe, &r, sizeof r) == sizeof r) {
		if (r.errnum) {
			r.step[sizeof r.step - 1] = '\0';
			return err_sys(e, ERR_UNAVAILABLE, r.errnum, "cannot start a fake sandbox: %s", r.step);
		}
		pid = r.pid;
	}
	if (pid < 0)
		err_set(e, ERR_UNAVAILABLE, ECHILD, "cannot start a fake sandbox: its process has vanished");
	return pid;
}

pid_t place_start(const char *dir, const char *guest_path, const char *hostname, struct err *e)
{
	auto_free char *root = xasprintf("%s/root", dir), *pid_file = xasprintf("%s/pid", dir);
	auto_fd int guest = open(guest_path, O_RDONLY | O_CLOEXEC), listener = -EBADF;
	int p[2], status;
	char text[64];

	if (guest < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot open the guest %s", guest_path);
	listener = listen_in(dir);
	if (listener < 0)
		return err_sys(e, ERR_UNAVAILABLE, -listener, "cannot listen in %s", dir);
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "pipe");
	pid_t child = fork();
	if (child == 0)
		set_up(p[1], guest, listener, root, hostname);
	close_fd(p[1]);
	pid_t pid = child < 0 ? err_sys(e, ERR_UNAVAILABLE, errno, "fork") : hear(p[0], e);
	close_fd(p[0]);
	if (child > 0)
		(void)waitpid(child, &status, 0);
	if (pid > 0) {
		snprintf(text, sizeof text, "%d %llu\n", (int)pid, (unsigned long long)start_time(pid));
		(void)write_file(AT_FDCWD, pid_file, text);
	}
	return pid;
}

int place_connect(const char *dir)
{
	struct sockaddr_un a;
	int r = address_of(dir, &a);
	auto_fd int fd = r < 0 ? r : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (r < 0)
		return r;
	if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return take_fd(&fd);
}

static pid_t read_pid(const char *dir)
{
	auto_free char *path = xasprintf("%s/pid", dir);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[64], *end;
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[MAX(n, 0)] = '\0';
	pid_t pid = (pid_t)strtol(text, &end, 10);
	uint64_t start = strtoull(end, NULL, 10);
	return pid > 1 && start && start_time(pid) == start ? pid : 0;
}

int place_process(const char *dir)
{
	pid_t pid = read_pid(dir);
	int fd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (fd < 0)
		return -ESRCH;
	if (read_pid(dir) == pid) /* still the same one, now that we hold it */
		return fd;
	close_fd(fd);
	return -ESRCH;
}

/* How many run in it; a signal other than 0 goes to each. */
static size_t each_process(const char *dir, int signo)
{
	char path[64], ours[64] = "", other[64];
	pid_t pid = read_pid(dir);
	DIR *d = opendir("/proc");
	size_t n = 0;

	snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
	if (!d || !pid || readlink(path, ours, sizeof ours - 1) < 0) {
		if (d)
			closedir(d);
		return 0;
	}
	for (struct dirent *entry; (entry = readdir(d));) {
		memset(other, 0, sizeof other);
		snprintf(path, sizeof path, "/proc/%.16s/ns/pid", entry->d_name);
		if (readlink(path, other, sizeof other - 1) <= 0 || !streq(ours, other))
			continue;
		n++;
		if (signo)
			(void)kill((pid_t)strtol(entry->d_name, NULL, 10), signo);
	}
	closedir(d);
	return n;
}

size_t place_processes(const char *dir)
{
	return each_process(dir, 0);
}

void place_hold(const char *dir, bool held)
{
	(void)each_process(dir, held ? SIGSTOP : SIGCONT);
}
