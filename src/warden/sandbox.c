#include "warden/sandbox.h"

#include "sys/fs.h"
#include "sys/host.h"
#include "sys/mnt.h"
#include "sys/netns.h"
#include "sys/process.h"
#include "warden/inside.h"
#include "warden/tap.h"
#include "warden/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB		   (1024ULL * 1024)
#define START_WAIT_MS	   10000 /* from clone to exec: a loaded machine, not a reason to hang for ever */
#define END_WITHIN_MS	   10000
#define SWEEP_FRACTION	   16
#define THROTTLED_AFTER_MS 30
#define ARGS_MAX	   640 /* user, workdir, hostname, env of 4096 bytes in pairs of at least 3, NULL */
#define STACK_SIZE	   65536

/* One child at a time: the next create starts when this one has exec'd or ended. */
static char stack[STACK_SIZE] __attribute__((aligned(4096)));

static void socket_name(const struct sandbox *s, char ret_name[static 48])
{
	snprintf(ret_name, 48, "%s.sock", s->record.id);
}

/* The guest's door: bound before the guest exists, so that a connect never comes too early. */
static int listen_for_guest(struct keeper *k, struct sandbox *s, struct err *e)
{
	char name[48];
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const struct warden_options *o = k->place->options;

	socket_name(s, name);
	(void)unlinkat(k->place->sockets_fd, name, 0);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* By way of the folder's descriptor: the run folder's path may be longer than a socket address. */
	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", k->place->sockets_fd, name);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "bind the guest's socket");
	if (fchmodat(k->place->sockets_fd, name, 0600, 0) < 0 ||
	    fchownat(k->place->sockets_fd, name, o->daemon_uid, o->daemon_gid, AT_SYMLINK_NOFOLLOW) < 0 || listen(fd, 8) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the guest's socket to the daemon");
	return take_fd(&fd);
}

struct arguments {
	char text[512];
	char *v[ARGS_MAX];
	char env[4096 + 5 * ARGS_MAX];
};

static int fill_arguments(struct arguments *a, const struct warden_request *rq, struct err *e)
{
	size_t n = 0, at = 0, env_at = 0;
	const char *const named[][2] = { { "user", rq->user }, { "workdir", rq->workdir }, { "hostname", rq->hostname },
					 { "sudo", rq->sudo ? PLACE_SUDO : "" } };
	static char name[] = "caisson-guest";

	a->v[n++] = name;
	for (size_t i = 0; i < ARRAY_LEN(named); i++) {
		if (!named[i][1][0])
			continue;
		a->v[n++] = a->text + at;
		at += (size_t)snprintf(a->text + at, sizeof a->text - at, "%s=%s", named[i][0], named[i][1]) + 1;
	}
	for (const char *p = rq->env; p < rq->env + rq->env_len; p += strlen(p) + 1) {
		if (n + 1 >= ARGS_MAX)
			return err_set(e, ERR_INVALID, E2BIG, "too many environment variables of the image");
		a->v[n++] = a->env + env_at;
		env_at += (size_t)snprintf(a->env + env_at, sizeof a->env - env_at, "env.%s", p) + 1;
	}
	a->v[n] = NULL;
	return 0;
}

static int map_ids(pid_t pid, uint32_t base)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	int rc = fs_write_at_f(AT_FDCWD, path, "0 %u %u", base, RANGE_SIZE);
	if (rc == 0) {
		snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
		rc = fs_write_at_f(AT_FDCWD, path, "0 %u %u", base, RANGE_SIZE);
	}
	return rc;
}

/* Puts the child's descriptors into their numbers, or /dev/null back: what is left there would keep a mount or a socket alive. */
static int offer_descriptors(const int *offered, int end)
{
	for (int fd = INSIDE_ROOT; fd < end; fd++)
		if (dup3(offered && offered[fd] >= 0 ? offered[fd] : INSIDE_NULL, fd, O_CLOEXEC) < 0)
			return -errno;
	return 0;
}

/* Maps, groups, "go", and the exec. 0 = the guest runs. */
static int see_it_through(struct keeper *k, struct sandbox *s, struct inside *in, pid_t pid, int pidfd, struct err *e)
{
	int rc = map_ids(pid, range_uid(s->slot->number));

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "map the sandbox's user ids");
	rc = cgroup_enter(k->groups, s->record.id, pid);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "put the sandbox into its cgroups");
	process_word_set(&in->go, 1);
	if (process_word_wait(&in->here, 1, START_WAIT_MS) < 0)
		return err_set(e, ERR_TIMEOUT, ETIMEDOUT, "the sandbox did not start within %d s", START_WAIT_MS / 1000);
	if (in->failed && in->failed_at && (in->failed_errno == ELOOP || in->failed_errno == ENOTDIR))
		return err_set(e, ERR_INVALID, in->failed_errno, "volumes: %s has a symlink or a file in its way: choose another path", in->failed_at);
	if (in->failed && in->failed_at)
		return err_sys(e, ERR_UNAVAILABLE, in->failed_errno, "inside the new sandbox: %s at %s", in->failed, in->failed_at);
	if (in->failed)
		return err_sys(e, ERR_UNAVAILABLE, in->failed_errno, "inside the new sandbox: %s", in->failed);
	if (process_start_time(pid, &s->record.start_time) < 0 || process_ended(pidfd))
		return err_set(e, ERR_UNAVAILABLE, ESRCH, "the sandbox's guest ended at once");
	return 0;
}

/* The clone itself and the handshake; everything it is given exists. On success record.pid and pidfd are set. */
static int clone_into(struct keeper *k, struct sandbox *s, struct inside *in, int cgroup_fd, int net, struct err *e)
{
	int pidfd = -EBADF, status;
	const uint64_t flags = CLONE_FILES | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS; /* cgroup: inside.c */

	int rc = netns_enter(net); /* from inside the new user namespace it would be refused */
	if (rc < 0 || (rc = stage_enter(&k->place->stage)) < 0) {
		(void)netns_enter(k->place->netns.own);
		return err_sys(e, ERR_UNAVAILABLE, -rc, "enter the namespaces that the sandbox gets");
	}
	pid_t pid = process_clone(flags, cgroup_fd, stack, sizeof stack, inside_main, in, &in->here, &pidfd);
	stage_leave(&k->place->stage);
	(void)netns_enter(k->place->netns.own);
	if (pid < 0)
		return err_sys(e, ERR_UNAVAILABLE, -pid, "clone the sandbox's first process");
	rc = see_it_through(k, s, in, pid, pidfd, e);
	if (rc < 0) {
		(void)process_signal(pidfd, SIGKILL);
		(void)process_wait(pidfd, &status); /* it shares our memory: it must be gone before we go on */
		close_fd(pidfd);
		return rc;
	}
	s->record.pid = pid;
	s->pidfd = pidfd;
	return 0;
}

int sandbox_clone(struct keeper *k, struct sandbox *s, struct inside *in, const int *offered, int offered_end, int group, int net, struct err *e)
{
	int rc = offer_descriptors(offered, offered_end), huge_off = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);

	in->here = 1;
	in->last_cap = k->last_cap;
	/* Huge pages cost a waiting machine 3 to 4 MiB. The switch is the memory's, which the child shares until its exec takes it over: no
	 * sandbox may find it turned. */
	if (in->kind == INSIDE_IS_VMM)
		(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	if (rc < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "place the sandbox's descriptors");
	else
		rc = clone_into(k, s, in, group, net, e);
	if (in->kind == INSIDE_IS_VMM && huge_off == 0)
		(void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	(void)offer_descriptors(NULL, offered_end);
	return rc;
}

/* Their mounts, one after the other; ret has the space. */
static int mount_volumes(const struct keeper *k, const struct sandbox *s, const struct warden_request *rq, int ret[], struct err *e)
{
	for (uint32_t i = 0; i < rq->volumes_n; i++)
		if ((ret[i] = volume_mount(k->place, &rq->volumes[i], s->slot->userns, e)) < 0)
			return ret[i];
	return 0;
}

/* A network namespace for a new sandbox; with a gate, if it is to have one. */
static int make_network(struct keeper *k, struct sandbox *s, struct err *e)
{
	struct spare_gate made;
	int rc;

	if (!s->record.network)
		return pool_namespace_get(k->pool, e);
	if ((rc = gatekeeper_ready(k->gates, e)) < 0 || (rc = pool_gate_get(k->pool, &made, e)) < 0)
		return rc;
	s->gate = made.gate;
	gatekeeper_hand(k->gates, s->record.id, s->gate);
	return made.inside;
}

/* From a mounted root to a running guest. */
static int launch(struct keeper *k, struct sandbox *s, const struct warden_request *rq, int root, struct err *e)
{
	static struct arguments args; /* one create at a time; too big for the stack */
	const struct cgroup_limits limits = { rq->memory_mib * MIB, rq->cpu_millis, rq->pids };
	int give[] = { INSIDE_NULL, INSIDE_NULL, INSIDE_NULL, INSIDE_LISTEN, INSIDE_CGROUP };
	struct inside in = { .hostname = rq->hostname,
			     .files_max = k->files_max,
			     .argv = args.v,
			     .give = give,
			     .give_n = ARRAY_LEN(give),
			     .volumes = rq->volumes,
			     .volumes_n = rq->volumes_n };
	int offered[INSIDE_GUEST_END];

	int rc = fill_arguments(&args, rq, e);
	if (rc < 0)
		return rc;
	snprintf(in.shm_size, sizeof in.shm_size, "%lluk", (unsigned long long)(rq->memory_mib * 1024 / 2));
	auto_fd int listener = listen_for_guest(k, s, e);
	if (listener < 0)
		return listener;
	auto_fd int dev = mnt_clone(k->place->dev_fd, "", false);
	if (dev < 0)
		return err_sys(e, ERR_UNAVAILABLE, -dev, "clone /dev");
	auto_fd int group = -EBADF;
	rc = cgroup_make(k->groups, s->record.id, &limits, range_uid(s->slot->number), &group, e);
	if (rc < 0)
		return rc;
	if (group < 0)
		give[4] = -EBADF;
	for (size_t i = 0; i < ARRAY_LEN(offered); i++)
		offered[i] = -EBADF;
	offered[INSIDE_ROOT] = root;
	offered[INSIDE_DEV] = dev;
	offered[INSIDE_GUEST] = k->place->guest_fd;
	offered[INSIDE_LISTEN] = listener;
	offered[INSIDE_CGROUP] = group;
	auto_fd int net = make_network(k, s, e);
	rc = net < 0 ? net : mount_volumes(k, s, rq, offered + INSIDE_VOLUME, e);
	if (rc == 0)
		rc = sandbox_clone(k, s, &in, offered, INSIDE_VOLUME + (int)rq->volumes_n, group, net, e);
	for (int i = INSIDE_VOLUME; i < INSIDE_GUEST_END; i++)
		close_fd(offered[i]);
	return rc;
}

void sandbox_undo_clone(struct keeper *k, struct sandbox *s)
{
	for (int tries = 0; cgroup_remove(k->groups, s->record.id) < 0 && tries < 50; tries++)
		usleep(1000);
	if (s->slot)
		pool_slot_put(k->pool, take_ptr(&s->slot));
}

/* Undoes what a launch that failed left. */
static void undo_launch(struct keeper *k, struct sandbox *s)
{
	char name[48];

	gatekeeper_detach(k->gates, s->record.id, &s->gate);
	socket_name(s, name);
	(void)unlinkat(k->place->sockets_fd, name, 0);
	sandbox_undo_clone(k, s);
}

static void note_limits(struct record *r, const struct warden_request *rq)
{
	r->memory_mib = rq->memory_mib;
	r->pids = rq->pids;
	r->cpu_millis = rq->cpu_millis;
	r->paused = 0;
}

/* Overlay, launch, record: the common part of create and start. `disk` is mounted and given back closed. */
static int bring_up(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct disk *disk, struct image_use *image, struct err *e)
{
	auto_fd int root = -EBADF;
	int lower = pool_slot_lower(k->pool, s->slot, image, e);
	int rc = lower < 0 ? lower
			   : disk_overlay(k->place, disk, (enum disk_kind)s->record.disk_kind, lower, range_uid(s->slot->number),
					  s->record.ephemeral && s->record.disk_kind == DISK_FILE, &root, e);

	s->record.loop = disk->loop;
	/* The overlay holds it from here on; to close a detached mount is to wait for a grace period. */
	if (disk->mount >= 0)
		helper_let_go(k->pool->space_helper, disk->mount, false);
	*disk = DISK_INIT;
	s->record.network = rq->network;
	/* Before there is a process, so that a warden that comes after a sudden end knows what to sweep. */
	s->record.pid = 0;
	if (rc == 0 && (rc = record_write(k->place->state_fd, &s->record)) < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "write the sandbox's record");
	if (rc == 0)
		rc = launch(k, s, rq, root, e);
	if (rc == 0) {
		s->record.slot = s->slot->number;
		memcpy(s->record.boot_id, k->place->boot_id, sizeof k->place->boot_id);
		note_limits(&s->record, rq);
		s->life = LIFE_RUNNING;
		rc = record_write(k->place->state_fd, &s->record);
		if (rc < 0) {
			(void)err_sys(e, ERR_UNAVAILABLE, -rc, "write the sandbox's record");
			int status;
			sandbox_kill(k, s);
			(void)process_wait(s->pidfd, &status);
			s->pidfd = close_fd(s->pidfd);
			s->record.pid = 0;
			s->life = LIFE_STOPPED;
		}
	}
	if (rc == 0)
		pool_slot_rest(k->pool, s->slot);
	else
		undo_launch(k, s);
	return rc;
}

/* A create that failed after it had its image. */
static void undo_create(struct keeper *k, struct sandbox *s)
{
	struct record *r = &s->record;

	if (s->slot)
		pool_slot_put(k->pool, take_ptr(&s->slot));
	(void)disk_remove_file(k->place, r->id);
	helper_empty_trash(k->pool->space_helper);
	record_remove(k->place->state_fd, r->id);
	pool_image_put(k->pool, r->image_digest);
	free(take_ptr(&s->making));
	s->life = LIFE_STOPPED;
}

/* Slot, image and disk are there. disk is taken. */
static int create_on(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct disk *disk, struct image_use *image, struct err *e)
{
	const struct disk_seed seed = { rq->id, rq->hostname };

	int rc = s->record.disk_kind == DISK_FILE ? disk_settle(disk, s->slot->userns, &seed, e) : 0;
	if (rc == 0)
		rc = bring_up(k, s, rq, disk, image, e);
	disk_close(disk);
	if (rc < 0)
		undo_create(k, s);
	else
		free(take_ptr(&s->making));
	return rc;
}

int sandbox_create(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	const struct disk_seed seed = { rq->id, rq->hostname };
	struct record *r = &s->record;
	struct disk disk = DISK_INIT;
	struct image_use *image;

	*r = (struct record){ .magic = RECORD_MAGIC, .size = sizeof *r, .ephemeral = rq->ephemeral, .disk_mib = rq->disk_mib };
	memcpy(r->id, rq->id, sizeof r->id);
	memcpy(r->image_digest, rq->image_digest, sizeof r->image_digest);
	r->disk_kind = disk_kind_for(rq->ephemeral, rq->disk_mib, rq->memory_mib);
	int rc = host_has(rq->memory_mib, rq->cpu_millis, e);
	if (rc == 0)
		rc = disk_check(k->place, (enum disk_kind)r->disk_kind, rq->disk_mib, e);
	if (rc == 0)
		rc = pool_image_get(k->pool, rq->image_digest, &image, e);
	if (rc < 0)
		return rc;
	s->slot = pool_slot_get(k->pool, e);
	if (!s->slot)
		rc = -EAGAIN;
	else if (r->disk_kind == DISK_MEMORY)
		rc = disk_make_memory(rq->disk_mib, range_uid(s->slot->number), &seed, &disk, e);
	else
		rc = pool_disk_get(k->pool, r->id, rq->disk_mib, !r->ephemeral, &disk, e);
	if (rc == -EINPROGRESS) {
		s->making = xcalloc(1, sizeof *rq);
		*s->making = *rq;
		s->life = LIFE_MAKING;
		return rc;
	}
	if (rc < 0) {
		undo_create(k, s);
		return rc;
	}
	return create_on(k, s, rq, &disk, image, e);
}

int sandbox_make(struct keeper *k, struct sandbox *s, struct err *e)
{
	const struct warden_request *rq = s->making;
	struct disk disk = DISK_INIT;
	struct image_use *image;

	int rc = pool_disk_take(k->pool, s->record.id, rq->disk_mib, !rq->ephemeral, &disk, e);
	if (rc > 0)
		return rc;
	s->life = LIFE_STOPPED;
	if (rc == 0)
		rc = pool_image_get(k->pool, rq->image_digest, &image, e); /* it has its hold already: this only finds it */
	if (rc < 0) {
		disk_close(&disk);
		undo_create(k, s);
		return rc;
	}
	pool_image_put(k->pool, rq->image_digest);
	return create_on(k, s, rq, &disk, image, e);
}

void sandbox_unmake(struct keeper *k, struct sandbox *s)
{
	undo_create(k, s);
}

int sandbox_boot(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	struct disk disk = DISK_INIT;
	struct image_use *image;

	bool known = s->record.image_digest[0];
	const struct disk_seed seed = { rq->id, rq->hostname };

	if (s->record.disk_kind != DISK_FILE || s->record.ephemeral)
		return err_set(e, ERR_GONE, ENOENT, "the sandbox is ephemeral and its disk went with its end");
	/* After a reboot only the file is known; the request says what it stands on. */
	if (known && !streq(s->record.image_digest, rq->image_digest))
		return err_set(e, ERR_CONFLICT, EINVAL, "the sandbox's disk belongs to the image %s", s->record.image_digest);
	int rc = host_has(rq->memory_mib, rq->cpu_millis, e);
	if (rc == 0)
		rc = pool_image_get(k->pool, rq->image_digest, &image, e);
	if (rc < 0)
		return rc;
	s->slot = pool_slot_get(k->pool, e);
	memcpy(s->record.image_digest, rq->image_digest, sizeof s->record.image_digest);
	rc = s->slot ? disk_open_file(k->place, s->record.id, s->record.loop, s->slot->userns, rq->fresh ? &seed : NULL, &disk, e) : -EAGAIN;
	if (rc == 0 && rq->fresh)
		s->record.ephemeral = rq->ephemeral;
	if (rc == 0)
		rc = bring_up(k, s, rq, &disk, image, e);
	if (rc < 0) {
		disk_close(&disk);
		if (s->slot)
			pool_slot_put(k->pool, take_ptr(&s->slot));
	}
	if (known || rc < 0)
		pool_image_put(k->pool, rq->image_digest); /* a sandbox whose image is known has its own hold on it */
	if (!known && rc < 0)
		s->record.image_digest[0] = '\0';
	return rc;
}

/* The end of PID 1 would take the mounts apart before it is told, with an RCU grace period for the namespace, one for the overlay and,
 * on a file, the flush of its journal. Held here, they go after the answer. Not for a stop: its disk must be free for the next start. */
static int hold_mounts(const struct sandbox *s)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)s->record.pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && process_ended(s->pidfd)) /* the number may be another's by now */
		fd = close_fd(fd);
	return fd;
}

void sandbox_kill(struct keeper *k, struct sandbox *s)
{
	if (s->life != LIFE_RUNNING)
		return;
	if (s->destroying)
		s->mounts = hold_mounts(s);
	cgroup_kill(k->groups, s->record.id);
	(void)process_signal(s->pidfd, SIGKILL);
	s->life = LIFE_ENDING;
	s->ending_since_ms = now_ms();
	s->unthrottled = false;
}

void sandbox_hurry(struct keeper *k, struct sandbox *s)
{
	if (!s->unthrottled && now_ms() - s->ending_since_ms > THROTTLED_AFTER_MS) {
		cgroup_unthrottle(k->groups, s->record.id);
		s->unthrottled = true;
	}
}

static bool patience_is_over(const struct sandbox *s)
{
	return now_ms() - s->ending_since_ms >= END_WITHIN_MS;
}

bool sandbox_end_is_late(struct keeper *k, struct sandbox *s)
{
	if (!patience_is_over(s))
		return false;
	cgroup_kill(k->groups, s->record.id);
	s->ending_since_ms = now_ms();
	return true;
}

void sandbox_ended(struct keeper *k, struct sandbox *s)
{
	if (s->record.machine) /* what was beside its QEMU */
		cgroup_kill(k->groups, s->record.id);
	gatekeeper_let_go(k->gates, s->record.id, &s->gate);
	process_reap(s->pidfd);
	s->pidfd = close_fd(s->pidfd);
	s->oom = !s->destroying && cgroup_oom_kills(k->groups, s->record.id) > 0; /* the counter goes with the groups */
	/* What is charged for the image stays: the next sandbox wants it in memory, and there is only so much of it. A disk that is
	 * deleted takes its pages along. */
	if (s->record.disk_kind == DISK_FILE && !s->destroying)
		cgroup_drop_cache(k->groups, s->record.id);
	sandbox_await_sweep(s);
}

void sandbox_await_sweep(struct sandbox *s)
{
	s->life = LIFE_SWEEPING;
	s->ending_since_ms = now_ms();
	s->sweep_next_ms = 0;
}

int sandbox_sweep(struct keeper *k, struct sandbox *s)
{
	char name[48];

	/* One that a disk or a server which does not answer holds is not to cost the others the processor. */
	s->sweep_next_ms = now_ms() + (now_ms() - s->ending_since_ms) / SWEEP_FRACTION;
	socket_name(s, name);
	(void)unlinkat(k->place->sockets_fd, name, 0);
	if (cgroup_remove(k->groups, s->record.id) < 0)
		return -EBUSY; /* for as long as it takes: its uids and its disk are nobody else's while a process of it lives */
	/* With its mounts in our hands the disk is still bound, and to nothing but them. */
	bool bound = s->mounts < 0 && s->record.disk_kind == DISK_FILE && disk_is_bound(k->place, s->record.id, s->record.loop);
	if (bound && !patience_is_over(s))
		return -EAGAIN;
	if (bound)
		log_warn("sandbox=%s msg=\"its disk is still bound to loop%u\"", s->record.id, s->record.loop);
	if (s->server >= 0)
		process_reap(s->server);
	s->server = close_fd(s->server);
	if (s->slot)
		pool_slot_put(k->pool, take_ptr(&s->slot));
	s->record.pid = 0;
	s->life = LIFE_STOPPED;
	if (!s->destroying && s->record.ephemeral && s->record.disk_kind == DISK_FILE && disk_remove_file(k->place, s->record.id) == 0)
		helper_empty_trash(k->pool->space_helper);
	if (!s->destroying && record_write(k->place->state_fd, &s->record) < 0)
		log_warn("sandbox=%s msg=\"record not written\"", s->record.id);
	return 0;
}

int sandbox_remove(struct keeper *k, struct sandbox *s)
{
	int rc = 0;

	if (s->record.disk_kind != DISK_MEMORY) { /* 0: one that nobody knows, which may have a disk */
		rc = disk_remove_file(k->place, s->record.id);
		if (s->mounts < 0)
			helper_empty_trash(k->pool->space_helper);
	}
	record_remove(k->place->state_fd, s->record.id);
	if (s->record.image_digest[0])
		pool_image_put(k->pool, s->record.image_digest);
	return rc;
}

void sandbox_let_go(struct keeper *k, struct sandbox *s)
{
	if (s->mounts >= 0)
		helper_let_go(k->pool->space_helper, s->mounts, s->record.disk_kind == DISK_FILE);
	s->mounts = -EBADF;
}

/* The namespace of its first process is the initial user namespace's: nobody inside has a say over it. */
static int gate_for_process(struct keeper *k, const struct sandbox *s, struct err *e)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)s->record.pid);
	auto_fd int inside = open(path, O_RDONLY | O_CLOEXEC);
	if (inside < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the sandbox's network namespace");
	return gate_new(k->gates->netns, inside, e);
}

/* Not the namespace of the process: its tap's. */
static int gate_for_machine(struct keeper *k, const struct sandbox *s, struct err *e)
{
	auto_fd int tap = tap_namespace(s->pidfd, VMM_FD_TAP);

	if (tap < 0)
		return err_sys(e, ERR_UNAVAILABLE, -tap, "find the machine's network device");
	int rc = gate_raise(k->gates->netns, tap, e);
	return rc < 0 ? rc : take_fd(&tap);
}

static int attach_live(struct keeper *k, struct sandbox *s, struct err *e)
{
	int rc = gatekeeper_ready(k->gates, e);

	if (rc == 0)
		rc = s->record.machine ? gate_for_machine(k, s, e) : gate_for_process(k, s, e);
	if (rc < 0)
		return rc;
	s->gate = rc;
	gatekeeper_hand(k->gates, s->record.id, s->gate);
	return 0;
}

int sandbox_network(struct keeper *k, struct sandbox *s, bool on, struct err *e)
{
	int rc = 0;

	if (!on)
		gatekeeper_detach(k->gates, s->record.id, &s->gate);
	else if (s->gate < 0)
		rc = attach_live(k, s, e);
	if (rc == 0) {
		s->record.network = on;
		rc = record_write(k->place->state_fd, &s->record);
		if (rc < 0)
			(void)err_sys(e, ERR_UNAVAILABLE, -rc, "write the sandbox's record");
	}
	return rc;
}

int sandbox_set_limits(struct keeper *k, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	const struct cgroup_limits was = { s->record.memory_mib * MIB, s->record.cpu_millis, s->record.pids };
	const struct cgroup_limits limits = { rq->memory_mib * MIB, rq->cpu_millis, rq->pids };

	int rc = host_has(rq->memory_mib, rq->cpu_millis, e);
	if (rc < 0)
		return rc;
	rc = cgroup_set_limits(k->groups, s->record.id, &was, &limits);
	if (rc == -EBUSY)
		return err_set(e, ERR_CONFLICT, EBUSY, "the sandbox uses more memory than %llu MiB now", (unsigned long long)rq->memory_mib);
	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "change the limits of the sandbox");
	s->record.memory_mib = rq->memory_mib;
	s->record.cpu_millis = rq->cpu_millis;
	s->record.pids = rq->pids;
	rc = record_write(k->place->state_fd, &s->record);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "write the sandbox's record") : 0;
}

int sandbox_freeze(struct keeper *k, struct sandbox *s, bool frozen)
{
	int rc = cgroup_freeze(k->groups, s->record.id, frozen);
	if (rc == 0) {
		s->record.paused = frozen;
		rc = record_write(k->place->state_fd, &s->record);
	}
	return rc;
}

void sandbox_measure(struct keeper *k, struct sandbox *s, struct warden_answer *a)
{
	struct cgroup_usage u = { 0 };
	struct statfs st;
	char path[40];

	cgroup_usage(k->groups, s->record.id, &u);
	a->started = s->life == LIFE_RUNNING;
	a->memory_bytes = u.memory_bytes;
	a->memory_limit = s->record.memory_mib * MIB;
	a->cpu_usec = u.cpu_usec;
	a->cpu_millis = s->record.cpu_millis;
	a->pids = u.pids;
	a->pids_limit = s->record.pids;
	a->oom_kills = u.oom_kills;
	a->disk_limit = s->record.disk_mib * MIB;
	/* The root of PID 1 is the overlay, which answers for the disk below. Asked of a link of /proc: no path of the sandbox's. */
	snprintf(path, sizeof path, "/proc/%d/root", (int)s->record.pid);
	if (s->record.pid > 0 && statfs(path, &st) == 0) {
		a->disk_bytes = (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
		a->disk_limit = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize;
		a->inodes = (uint64_t)(st.f_files - st.f_ffree);
		a->inodes_limit = (uint64_t)st.f_files;
	}
}

static int find_process(const struct keeper *k, const struct record *r)
{
	uint64_t start;

	if (r->pid <= 0 || !streq(r->boot_id, k->place->boot_id))
		return -ESRCH;
	auto_fd int fd = process_pidfd(r->pid);
	if (fd < 0)
		return fd;
	/* The pidfd is held: whatever has the number now keeps it, so the start time is of the same process. */
	if (process_start_time(r->pid, &start) < 0 || start != r->start_time)
		return -ESRCH;
	return take_fd(&fd);
}

void sandbox_adopt(struct keeper *k, struct sandbox *s, const struct record *r)
{
	struct image_use *image;
	struct err e;

	s->record = *r;
	s->pidfd = find_process(k, r);
	if (r->image_digest[0] && pool_image_get(k->pool, r->image_digest, &image, &e) < 0) {
		log_warn("sandbox=%s msg=\"%s\"", r->id, e.message);
		s->record.image_digest[0] = '\0'; /* so that it is not put back later */
	}
	if (r->pid > 0 && streq(r->boot_id, k->place->boot_id))
		s->slot = pool_slot_adopt(k->pool, r->slot);
	if (s->pidfd >= 0) {
		s->life = LIFE_RUNNING;
		/* Its old gate ends with the old edge. */
		if (r->network && attach_live(k, s, &e) < 0)
			log_error("sandbox=%s msg=\"it has no network any more: %s\"", r->id, e.message);
		return;
	}
	s->oom = cgroup_oom_kills(k->groups, r->id) > 0;
	sandbox_await_sweep(s);
	cgroup_kill(k->groups, r->id); /* a killed PID 1 takes everybody along; this is for a half-made one */
}
