#include "warden/machine.h"

#include "sys/host.h"
#include "sys/process.h"
#include "warden/machine-volumes.h"
#include "warden/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024ULL * 1024)

/* Besides the guest's memory: QEMU itself (18 MiB private), translated code (64 MiB under emulation), stacks, and the page cache of the
 * image, which is charged here and given back under pressure; and what it keeps for each page. */
#define OVERHEAD_MIB(memory_mib) (256 + (memory_mib) / 64)
#define THREADS_MAX  256 /* processors, and up to 64 workers for each of a few devices */
#define FILES_MAX    256

static bool is_file(int fd, struct stat *ret)
{
	return fstat(fd, ret) == 0 && S_ISREG(ret->st_mode);
}

/* Seals exist for memory files only. */
static bool is_memory_file(int fd, struct stat *ret)
{
	return is_file(fd, ret) && fcntl(fd, F_GET_SEALS) >= 0;
}

bool machine_is_memory(int fd, uint64_t mib)
{
	struct stat st;

	return is_memory_file(fd, &st) && (uint64_t)st.st_size == mib * MIB;
}

static bool is_listener(int fd)
{
	int domain = 0, type = 0, listens = 0;
	socklen_t n = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_UNIX && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 &&
	       type == SOCK_STREAM && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens;
}

/* A folder, above all, would be a way out of the empty root. Those that its plan does not take are not there. */
static const char *wrong_descriptor(const struct machine_fds *fds, const struct vmm_plan *plan, uint64_t *ret_disk_bytes)
{
	static const char *const named[VMM_FDS] = { "image", "disk", "guest", "qmp", "ram", "initrd", "kernel", "tap", "volumes" };
	struct stat st;

	for (int fd = VMM_FD_FIRST; fd < VMM_FD_END; fd++) {
		int one = fds->vmm[fd - VMM_FD_FIRST];
		if (!(MACHINE_GIVEN(plan) & VMM_FD_BIT(fd)))
			continue;
		bool right = fd == VMM_FD_GUEST || fd == VMM_FD_QMP ? is_listener(one) : fd == VMM_FD_RAM ? machine_is_memory(one, plan->memory_mib) : is_file(one, &st);
		if (!right)
			return named[fd - VMM_FD_FIRST];
		if (fd == VMM_FD_DISK)
			*ret_disk_bytes = (uint64_t)st.st_size;
	}
	return is_memory_file(fds->log, &st) ? NULL : "log";
}

/* Groups and clone. The record is written, the slot taken. */
static int launch(struct keeper *k, struct machine_root *root, struct sandbox *s, const struct machine_request *rq, int fds[static VMM_FDS], int log,
		  uint64_t disk_bytes, struct err *e)
{
	const struct vmm_plan *plan = &rq->plan;
	const uint64_t limit_mib = plan->memory_mib + OVERHEAD_MIB(plan->memory_mib);
	const struct cgroup_limits limits = { limit_mib * MIB, plan->cpu_millis, THREADS_MAX };
	int give[VMM_FD_END] = { INSIDE_NULL, INSIDE_NULL, INSIDE_LOG }, offered[INSIDE_VMM_END];

	auto_fd int tree = machine_root_clone(root, k->place, plan->kvm, e);
	if (tree < 0)
		return tree;
	auto_fd int group = -EBADF;
	auto_fd int line = -EBADF;
	int rc = cgroup_make(k->groups, s->record.id, &limits, 0, &group, e);
	if (rc == 0 && plan->volumes)
		rc = machine_volumes_start(k, s, rq, group, &line, e);
	if (rc < 0)
		return rc;
	fds[VMM_FD_VOLUMES - VMM_FD_FIRST] = line;
	offered[INSIDE_ROOT] = tree;
	offered[INSIDE_LOG] = log;
	for (int i = 0; i < VMM_FDS; i++) {
		offered[INSIDE_VMM + i] = fds[i];
		give[VMM_FD_FIRST + i] = fds[i] < 0 ? -EBADF : INSIDE_VMM + i;
	}
	char *env[] = { root->libraries, NULL }, **argv = vmm_argv(k->place->options->vmm ? k->place->options->vmm : VMM_PROGRAM, plan);
	struct inside in = {
		.kind = INSIDE_IS_VMM,
		.hostname = "machine",
		.files_max = FILES_MAX,
		.argv = argv,
		.env = env,
		.give = give,
		.give_n = ARRAY_LEN(give),
		/* Its disk is as large as it may become. What it saves of itself goes to memory files, which count against its group. */
		.file_bytes_max = MAX(disk_bytes, limit_mib * MIB),
	};
	auto_fd int net = pool_namespace_get(k->pool, e);
	rc = net < 0 ? net : sandbox_clone(k, s, &in, offered, INSIDE_VMM_END, group, net, e);
	vmm_argv_free(argv);
	return rc;
}

/* Its tap; and the gate around that, if it has a network. */
static int make_tap(struct keeper *k, struct sandbox *s, struct err *e)
{
	int rc = s->record.network ? gatekeeper_ready(k->gates, e) : 0;
	auto_fd int in = rc < 0 ? rc : pool_namespace_get(k->pool, e);
	auto_fd int tap = in < 0 ? in : tap_new(&k->place->netns, in, e);

	if (tap < 0)
		return tap;
	if (s->record.network) {
		if ((rc = gate_raise(&k->place->netns, in, e)) < 0)
			return rc;
		s->gate = take_fd(&in);
		gatekeeper_hand(k->gates, s->record.id, s->gate);
	}
	return take_fd(&tap);
}

/* A process without a record would be nobody's. */
static void end_at_once(struct sandbox *s)
{
	int status;

	(void)process_signal(s->pidfd, SIGKILL);
	(void)process_wait(s->pidfd, &status);
	s->pidfd = close_fd(s->pidfd);
}

int machine_start(struct keeper *k, struct machine_root *root, struct sandbox *s, const struct machine_request *rq, const struct machine_fds *fds,
		  struct err *e)
{
	struct record *r = &s->record;
	uint64_t disk_bytes = 0;
	struct image_use *image;
	int own[VMM_FDS];

	*r = (struct record){ .magic = RECORD_MAGIC, .size = sizeof *r, .machine = 1, .ephemeral = 1, .disk_kind = DISK_MEMORY,
			      .memory_mib = rq->plan.memory_mib, .cpu_millis = rq->plan.cpu_millis, .pids = THREADS_MAX,
			      .network = rq->network };
	memcpy(r->id, rq->id, sizeof r->id);
	memcpy(r->image_digest, rq->image_digest, sizeof r->image_digest);
	memcpy(r->boot_id, k->place->boot_id, sizeof k->place->boot_id);
	const char *wrong = wrong_descriptor(fds, &rq->plan, &disk_bytes);
	if (wrong)
		return err_set(e, ERR_INVALID, EBADF, "%s: not the kind of descriptor that it has to be", wrong);
	int rc = host_has(rq->plan.memory_mib, rq->plan.cpu_millis, e);
	if (rc == 0)
		rc = pool_image_get(k->pool, rq->image_digest, &image, e);
	if (rc < 0)
		return rc;
	memcpy(own, fds->vmm, sizeof own);
	auto_fd int erofs = openat(image->folder, "root.erofs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	own[VMM_FD_IMAGE - VMM_FD_FIRST] = erofs;
	if (erofs < 0)
		rc = err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "open the file system of the image %s", rq->image_digest);
	else if (!(s->slot = pool_slot_get(k->pool, e)))
		rc = -EAGAIN;
	auto_fd int tap = rc == 0 && rq->plan.tap ? make_tap(k, s, e) : -EBADF;
	if (rc == 0 && rq->plan.tap && tap < 0)
		rc = tap;
	own[VMM_FD_TAP - VMM_FD_FIRST] = tap;
	/* Before there is a process, so that a warden that comes after a sudden end knows what to sweep. */
	if (rc == 0 && (rc = record_write(k->place->state_fd, r)) < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "write the machine's record");
	if (rc == 0)
		rc = launch(k, root, s, rq, own, fds->log, disk_bytes, e);
	if (rc == 0) {
		r->slot = s->slot->number;
		s->life = LIFE_RUNNING;
		if ((rc = record_write(k->place->state_fd, r)) < 0) {
			(void)err_sys(e, ERR_UNAVAILABLE, -rc, "write the machine's record");
			end_at_once(s);
		}
	}
	if (rc == 0) {
		pool_slot_rest(k->pool, s->slot);
		return 0;
	}
	gatekeeper_detach(k->gates, s->record.id, &s->gate);
	machine_volumes_end(s);
	sandbox_undo_clone(k, s);
	record_remove(k->place->state_fd, r->id);
	pool_image_put(k->pool, rq->image_digest);
	return rc;
}
