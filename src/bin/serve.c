/* `caisson serve`: the steps that need root, then the daemon without it.
 *
 *   1. DATA is made: DATA/disks is root's, DATA/state the daemon's, DATA/api-key the daemon's file. The daemon owns no folder
 *      that the warden walks through, so it can't put a link in the warden's way.
 *   2. DATA/lock is taken and stays taken until daemon and warden have both ended: one server per data folder.
 *   3. The sockets are bound. 4. The warden is started as a process of its own, joined by one seqpacket pair.
 *   5. All privileges are given up. 6. The daemon runs.
 *
 * Whoever of the two dies, the other ends: the warden leaves the sandboxes running (or, ephemeral, ends them), and the next
 * `caisson serve` adopts them. */
#include "bin/daemon.h"
#include "bin/vm.h"
#include "bin/warden.h"
#include "boundary/process/process.h"
#include "warden/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 15000, BIND_WAIT_MS = 5000, WARDEN_WAIT_MS = 10000, POLL_MS = 2 };
#define DAEMON_UID 0x3fffffffu /* without a user "caisson": just below the uid ranges of the sandboxes */

struct paths {
	char *disks, *state, *key, *lock;
};

static void paths_done(struct paths *p)
{
	free(p->disks);
	free(p->state);
	free(p->key);
	free(p->lock);
}

static void daemon_ids(uid_t *uid, gid_t *gid)
{
	const struct passwd *pw = getpwnam("caisson");

	*uid = pw ? pw->pw_uid : DAEMON_UID;
	*gid = pw ? pw->pw_gid : DAEMON_UID;
}

static int make_folder(const char *path, mode_t mode, uid_t uid, gid_t gid, struct err *e)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot make %s", path);
	auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot prepare %s", path);
	return 0;
}

static int make_parents(const char *path, struct err *e)
{
	auto_free char *p = xstrdup(path);

	for (char *slash = strchr(p + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(p, 0755) < 0 && errno != EEXIST)
			return err_sys(e, ERR_UNAVAILABLE, errno, "cannot make %s", p);
		*slash = '/';
	}
	return 0;
}

static int prepare_data(const struct serve_options *o, struct paths *p, uid_t uid, gid_t gid, struct err *e)
{
	p->disks = xasprintf("%s/disks", o->data);
	p->state = xasprintf("%s/state", o->data);
	p->key = xasprintf("%s/api-key", o->data);
	p->lock = xasprintf("%s/lock", o->data);
	if (make_parents(o->data, e) < 0 || make_folder(o->data, 0711, 0, 0, e) < 0 || make_folder(p->disks, 0700, 0, 0, e) < 0 ||
	    make_folder(p->state, 0700, uid, gid, e) < 0 || make_parents(o->socket, e) < 0)
		return -EIO;
	auto_fd int fd = open(p->key, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, 0600) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot make %s", p->key);
	return 0;
}

/* A server that was killed holds the lock until its warden has noticed: so wait a little. */
static int take_lock(const char *path, struct err *e)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot open %s", path);
	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += POLL_MS) {
		if (waited >= LOCK_WAIT_MS) {
			close_fd(fd);
			return err_set(e, ERR_CONFLICT, EBUSY, "another caisson server uses this data folder (%s is locked): stop it, or give --data another one",
			               path);
		}
		usleep(POLL_MS * 1000);
	}
	return fd;
}

static int bind_sockets(uv_loop_t *loop, const struct serve_options *o, struct daemon **ret, struct err *e)
{
	int rc;

	for (int waited = 0; (rc = daemon_new(loop, o, ret, e)) == -EADDRINUSE && waited < BIND_WAIT_MS; waited += POLL_MS)
		usleep(POLL_MS * 1000);
	return rc;
}

/* ret_machines: its door for the vm boundary; left alone unless `vm`. */
static pid_t start_warden(const struct serve_options *o, int lock, uid_t uid, gid_t gid, bool vm, int *ret_fd, int *ret_machines, struct err *e)
{
	int pair[2], machines[2] = { -EBADF, -EBADF };

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "socketpair");
	pid_t pid = vm && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, machines) < 0 ? -1 : fork();
	if (pid < 0) {
		int cause = errno;
		for (int i = 0; i < 2; i++) {
			close_fd(pair[i]);
			close_fd(machines[i]);
		}
		return err_sys(e, ERR_UNAVAILABLE, cause, "cannot start the warden");
	}
	if (pid == 0) {
		setpgid(0, 0); /* a terminal's ^C is for the daemon, which then ends the warden in order */
		warden_exec(o, pair[1], machines[1], lock, uid, gid);
		_exit(127);
	}
	close_fd(pair[1]);
	close_fd(machines[1]);
	*ret_fd = pair[0];
	if (vm)
		*ret_machines = machines[0];
	return pid;
}

/* It tidies up after us: when this program has ended, so should everything it leaves behind. */
static void wait_for_warden(pid_t pid)
{
	for (int waited = 0; waitpid(pid, NULL, WNOHANG) == 0 && waited < WARDEN_WAIT_MS; waited += POLL_MS)
		usleep(POLL_MS * 1000);
}

static int drop_privileges(uid_t uid, gid_t gid, struct err *e)
{
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, ERR_INTERNAL, errno, "cannot give up root");
	if (setresuid(0, 0, 0) == 0)
		return err_set(e, ERR_INTERNAL, EPERM, "root could be taken back");
	return 0;
}

static void on_warden_lost(void *ctx, const struct err *why)
{
	daemon_lost(ctx, why->message);
}

/* The first is the one of sandboxes that ask for none. */
static int add_boundaries(struct daemon *d, uv_loop_t *loop, int warden_fd, const struct vm_parts *vm, int machines, struct err *e)
{
	struct boundary *process = process_boundary_new(loop, warden_fd, on_warden_lost, d);
	struct boundary *machine = machines < 0 ? NULL : vm_parts_boundary(loop, vm, machines, process, e);

	process_boundary_on_edge(process, daemon_edge, d);
	if (machine && vm->preferred)
		daemon_add_boundary(d, machine);
	daemon_add_boundary(d, process);
	if (machine && !vm->preferred)
		daemon_add_boundary(d, machine);
	return machines >= 0 && !machine ? -EIO : 0;
}

static void raise_file_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static int serve(const struct serve_options *o, struct paths *p, struct vm_parts *vm, struct daemon **d, uv_loop_t *loop, pid_t *warden,
		 struct err *e)
{
	uid_t uid;
	gid_t gid;
	int warden_fd = -EBADF, machines = -EBADF, lock;

	if (geteuid() != 0)
		return err_set(e, ERR_DENIED, EPERM, "the server needs root to make boundaries: run it with sudo (it gives root up in all but one small process)");
	if (doctor_require_process(o->images, e) < 0)
		return -ENOSYS;
	daemon_ids(&uid, &gid);
	int rc = vm_parts_find(o, uid, gid, vm, e);
	if (rc < 0)
		return rc;
	raise_file_limit();
	umask(022);
	if (prepare_data(o, p, uid, gid, e) < 0)
		return -EIO;
	lock = take_lock(p->lock, e);
	if (lock < 0)
		return lock;
	rc = vm->data ? make_folder(vm->data, 0700, uid, gid, e) : 0;
	if (rc < 0)
		return rc;
	rc = bind_sockets(loop, o, d, e);
	if (rc < 0)
		return rc;
	if (chown(o->socket, uid, gid) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot give %s to the daemon", o->socket);
	*warden = start_warden(o, lock, uid, gid, vm->data, &warden_fd, &machines, e);
	if (*warden < 0)
		return *warden;
	rc = drop_privileges(uid, gid, e);
	if (rc < 0)
		return rc;
	return add_boundaries(*d, loop, warden_fd, vm, machines, e);
}

int serve_main(const struct serve_options *o)
{
	struct paths paths = { 0 };
	struct vm_parts vm = { 0 };
	struct daemon *d = NULL;
	pid_t warden = -1;
	uv_loop_t loop;
	struct err e;
	int code = 1;

	log_set_level(o->log_level);
	log_set_name("caissond");
	prctl(PR_SET_NAME, "caissond");
	uv_loop_init(&loop);
	if (serve(o, &paths, &vm, &d, &loop, &warden, &e) < 0)
		fprintf(stderr, "caisson: %s\n", e.message);
	else
		code = daemon_run(d, paths.state, paths.key);
	daemon_free(d); /* the warden ends when the last of its doors is closed */
	if (warden > 0)
		wait_for_warden(warden);
	paths_done(&paths);
	vm_parts_done(&vm);
	uv_loop_close(&loop);
	return code;
}
