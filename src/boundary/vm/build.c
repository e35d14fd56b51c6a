#include "boundary/vm/build.h"

#include "base/log.h"
#include "boundary/vm/ask.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/qemu.h"
#include "boundary/vm/template_int.h"
#include "wire/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Theory of operation.  mke2fs -> QEMU boots -> the guest mounts the disk, and says so -> it runs what a tenant is likely
 * to run first, writes its disk, and comes to rest -> the state of the devices is written to a memory file; memory (x-ignore-shared) and disk are such
 * files already -> QEMU is killed, and when it is gone all are sealed.
 *
 * What has been read for that first run lies in the memory that all copies share, and is not read again by each of them. What has come to
 * rest does not go on in each of them: half of what a copy did before its first answer was the rest of the boot.
 *
 * The machine is not stopped before it is saved, or its copies would begin stopped. Nothing runs in it by then but the guest, which waits. */

enum { WARM_MS = 15000, REST_MS = 1000 };

struct build {
	const struct template_host *host;
	const struct template_need *need;
	int dir;
	struct template_files files;
	uint64_t boot_ms;
	uv_process_t mkfs;
	struct qemu *qemu;
	struct ask *ask;
	uv_timer_t rest;
	unsigned handles;
	built_fn done;
	void *ctx;
	struct err why; /* kind 0 = it is saved */
	bool saved;
};

static void tell(struct build *b, const struct err *e)
{
	struct template_files files = b->files;

	if (!e)
		b->files = template_no_files();
	b->done(b->ctx, e, e ? NULL : &files);
}

static void fail(struct build *b, const struct err *e)
{
	if (!b->why.kind)
		b->why = *e;
	qemu_kill(b->qemu);
}

static void on_ended(void *ctx, const struct err *why)
{
	struct build *b = ctx;
	struct err e = b->why;
	int r = 0;

	ask_free(take_ptr(&b->ask));
	if (b->saved && !e.kind) {
		r = template_files_seal(&b->files);
		if (r < 0)
			(void)err_sys(&e, ERR_UNAVAILABLE, -r, "seal the template's files");
	} else if (!e.kind) {
		e = *why;
	}
	tell(b, e.kind ? &e : NULL);
}

/* --- save --- */

static void on_event(void *ctx, const char *name, const json_t *data)
{
	struct build *b = ctx;
	const char *status = json_string_value(json_object_get(data, "status"));
	struct err e;

	if (!streq(name, "MIGRATION") || !status || b->saved)
		return;
	if (streq(status, "completed")) {
		b->saved = true;
		qemu_kill(b->qemu);
	} else if (streq(status, "failed")) {
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "QEMU could not save the template");
		fail(b, &e);
	}
}

static void on_told(void *ctx, const struct err *e, const json_t *result)
{
	(void)result;
	if (e && e->errnum != EPIPE && e->errnum != ECANCELED) /* those are the connection's end, of which the process's end tells */
		fail(ctx, e);
}

static void save(struct build *b)
{
	int fd = fcntl(b->files.fds[TEMPLATE_STATE], F_DUPFD_CLOEXEC, 3);

	qemu_call(b->qemu, "migrate-set-capabilities", qemu_capabilities(), -EBADF, on_told, b);
	qemu_call(b->qemu, "getfd", json_pack("{s:s}", "fdname", "state"), fd, on_told, b);
	qemu_call(b->qemu, "migrate", json_pack("{s:s}", "uri", "fd:state"), -EBADF, on_told, b);
}

/* --- boot --- */

static void ask(struct build *b, const struct ask_what *w, ask_done_fn done)
{
	struct err e;
	int fd = vmdir_connect(b->dir, "guest");

	if (fd < 0) {
		(void)err_sys(&e, ERR_UNAVAILABLE, -fd, "connect to the virtual machine's serial port");
		fail(b, &e);
		return;
	}
	b->ask = ask_new(b->host->qemu->loop, fd, w, done, b);
}

static void on_rested(uv_timer_t *t)
{
	save(t->data);
}

static void on_synced(void *ctx, const struct err *e)
{
	struct build *b = ctx;

	b->ask = NULL;
	if (e)
		fail(b, e);
	else
		uv_timer_start(&b->rest, on_rested, REST_MS, 0);
}

static void put_release_and_sync(void *ctx, struct buf *to)
{
	(void)guest_frame_put(to, GUEST_RUN_RELEASE, 0, ASK_ID, (struct str){ NULL, 0 });
	ask_put_sync(ctx, to);
}

/* Whether an image has these programs is its own matter. */
static void on_warm(void *ctx, const struct err *e)
{
	struct build *b = ctx;

	(void)e;
	b->ask = NULL;
	ask(b, &(struct ask_what){ put_release_and_sync, GUEST_OP_END, ASK_BETWEEN, b->boot_ms }, on_synced);
}

static void put_warm(void *ctx, struct buf *to)
{
	static const char *argv[] = { "{shell}", "-c", "exec >/dev/null 2>&1; /bin/true; python3 -B -c pass; /bin/true", NULL };

	(void)ctx;
	(void)guest_run_request_put(to, GUEST_RUN_START, ASK_ID, &(struct guest_run_request){ .argv = argv, .argc = 3, .user = "0:0", .timeout_ms = WARM_MS });
}

static void on_setup(void *ctx, const struct err *e)
{
	struct build *b = ctx;

	b->ask = NULL;
	if (e)
		fail(b, e);
	else
		ask(b, &(struct ask_what){ put_warm, GUEST_RUN_END, ASK_BETWEEN, 2 * WARM_MS }, on_warm);
}

/* Nothing of what makes a sandbox: it only mounts. The machine id and what it says of sudo are there for each copy to write over, and the usual limit
 * need not be set in each. */
static void put_setup(void *ctx, struct buf *to)
{
	(void)ctx;
	(void)guest_setup_put(to, ASK_ID, &(struct guest_setup){ .machine_id = "00000000000000000000000000000000", .pids = RESOURCES_PIDS_DEFAULT, .sudo = GUEST_SUDO_YES });
}

static void on_started(void *ctx, const struct err *e)
{
	struct build *b = ctx;

	if (e)
		tell(b, e);
	else
		ask(b, &(struct ask_what){ put_setup, GUEST_SETUP_DONE, ASK_HALF_SAID, b->boot_ms }, on_setup);
}

static int boot(struct build *b, struct err *e)
{
	static const struct qemu_events events = { .started = on_started, .ended = on_ended, .event = on_event };
	const struct template_host *h = b->host;
	char id[37];
	auto_fd int kernel = open(h->kernel, O_RDONLY | O_CLOEXEC);
	auto_fd int guest = vmdir_listen(b->dir, "guest");
	auto_fd int qmp = vmdir_listen(b->dir, "qmp");

	if (kernel < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the kernel %s", h->kernel);
	if (guest < 0 || qmp < 0)
		return err_set(e, ERR_UNAVAILABLE, EIO, "open the template's sockets");
	random_uuid(id);
	if (vmdir_write(b->dir, "id", id) < 0) /* whoever finds it running when we have gone can end it */
		return err_set(e, ERR_UNAVAILABLE, EIO, "write down the template's machine");
	struct launch l = { .id = id,
			    .image = b->need->image,
			    .plan = template_plan(h, b->need),
			    .fds = { -EBADF, b->files.fds[TEMPLATE_DISK], guest, qmp, b->files.fds[TEMPLATE_RAM], h->initrd, kernel } };
	b->qemu = qemu_new(h->qemu, b->dir, &events, b);
	qemu_start(b->qemu, &l);
	return 0;
}

/* --- disk --- */

static void free_later(uv_handle_t *h)
{
	struct build *b = h->data;

	if (--b->handles > 0)
		return;
	template_files_close(&b->files);
	free(b);
}

static void close_handles(struct build *b)
{
	uv_close((uv_handle_t *)&b->rest, free_later);
	uv_close((uv_handle_t *)&b->mkfs, free_later);
}

static void on_mkfs(uv_process_t *p, int64_t status, int signal)
{
	struct build *b = p->data;
	struct err e;

	if (status != 0 || signal != 0) {
		(void)err_set(&e, ERR_UNAVAILABLE, EIO, "mke2fs could not make the disk");
		tell(b, &e);
	} else if (boot(b, &e) < 0) {
		tell(b, &e);
	}
}

/* mke2fs has the disk as a descriptor. 0, or a negative number of libuv's. */
static int make_disk(struct build *b)
{
	enum { DISK = 3 };
	const char *args[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-i", "16384", "-J", "size=4", "-E",
			       "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "/proc/self/fd/3", NULL };
	char path_env[] = "PATH=/usr/sbin:/sbin:/usr/bin:/bin";
	char *env[] = { path_env, NULL };
	uv_stdio_container_t fds[DISK + 1] = { [DISK] = { .flags = UV_INHERIT_FD, .data.fd = b->files.fds[TEMPLATE_DISK] } };
	uv_process_options_t o = { .exit_cb = on_mkfs, .file = "mke2fs", .args = (char **)(uintptr_t)args, .env = env, .stdio_count = DISK + 1, .stdio = fds };

	return uv_spawn(b->host->qemu->loop, &b->mkfs, &o);
}

struct build *build_new(const struct template_host *h, const struct template_need *need, int dir, uint64_t boot_ms, built_fn done, void *ctx, struct err *e)
{
	struct build *b = xcalloc(1, sizeof *b);
	const uint64_t sizes[TEMPLATE_FILES] = { [TEMPLATE_RAM] = need->memory_mib << 20, [TEMPLATE_DISK] = need->disk_mib << 20 };

	*b = (struct build){ .host = h, .need = need, .dir = dir, .boot_ms = boot_ms, .done = done, .ctx = ctx };
	b->mkfs.data = b->rest.data = b;
	b->handles = 2;
	uv_timer_init(h->qemu->loop, &b->rest);
	int r = template_files_make(&b->files, sizes); /* errno's are libuv's numbers, too */
	if (r == 0)
		r = make_disk(b);
	if (r < 0) {
		(void)err_set(e, ERR_UNAVAILABLE, -r, "run mke2fs (package e2fsprogs) on a new disk: %s", uv_strerror(r));
		close_handles(b);
		return NULL;
	}
	return b;
}

void build_free(struct build *b)
{
	if (!b)
		return;
	if (uv_is_active((uv_handle_t *)&b->mkfs))
		(void)uv_process_kill(&b->mkfs, SIGKILL);
	ask_free(take_ptr(&b->ask));
	if (b->qemu)
		qemu_kill(b->qemu);
	qemu_free(take_ptr(&b->qemu));
	close_handles(b);
}
