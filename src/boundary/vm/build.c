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

/* Theory of operation.  mke2fs -> QEMU boots -> the guest mounts the disk, and says so -> the line to it is closed -> the state of the devices
 * is written to a memory file; memory is one already (x-ignore-shared) -> QEMU is killed, and when it is gone both are sealed.
 *
 * The machine is not stopped before it is saved, or its copies would begin stopped. Nothing runs in it by then but the guest, which waits. */

struct build {
	const struct template_host *host;
	const struct template_need *need;
	const char *path;
	int dir, ram, state;
	uint64_t boot_ms;
	uv_process_t mkfs;
	struct qemu *qemu;
	struct ask *ask;
	built_fn done;
	void *ctx;
	struct err why; /* kind 0 = it is saved */
	bool saved;
};

static void tell(struct build *b, const struct err *e)
{
	b->done(b->ctx, e, e ? -EBADF : take_fd(&b->ram), e ? -EBADF : take_fd(&b->state));
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
		r = template_seal(b->ram);
		r = r == 0 ? template_seal(b->state) : r;
		if (r < 0)
			(void)err_sys(&e, ERR_UNAVAILABLE, -r, "seal the template's memory");
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
	int fd = fcntl(b->state, F_DUPFD_CLOEXEC, 3);

	qemu_call(b->qemu, "migrate-set-capabilities", qemu_capabilities(), -EBADF, on_told, b);
	qemu_call(b->qemu, "getfd", json_pack("{s:s}", "fdname", "state"), fd, on_told, b);
	qemu_call(b->qemu, "migrate", json_pack("{s:s}", "uri", "fd:state"), -EBADF, on_told, b);
}

/* --- boot --- */

/* Nothing of what makes a sandbox: it only mounts. */
static void put_setup(void *ctx, struct buf *to)
{
	(void)ctx;
	(void)guest_setup_put(to, ASK_ID, &(struct guest_setup){ 0 });
}

static void on_setup(void *ctx, const struct err *e)
{
	struct build *b = ctx;

	b->ask = NULL;
	if (e)
		fail(b, e);
	else
		save(b);
}

static void on_started(void *ctx, const struct err *e)
{
	struct build *b = ctx;
	struct err failed;

	if (e) {
		tell(b, e);
		return;
	}
	int fd = vmdir_connect(b->dir, "guest");
	if (fd >= 0) {
		b->ask = ask_new(b->host->qemu->loop, fd, put_setup, GUEST_SETUP_DONE, b->boot_ms, on_setup, b);
		return;
	}
	(void)err_sys(&failed, ERR_UNAVAILABLE, -fd, "connect to the virtual machine's serial port");
	fail(b, &failed);
}

static int memory_file(const char *name, uint64_t size)
{
	auto_fd int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 || ftruncate(fd, (off_t)size) < 0 ? -errno : take_fd(&fd);
}

static int boot(struct build *b, struct err *e)
{
	static const struct qemu_events events = { on_started, on_ended, on_event };
	const struct template_host *h = b->host;
	char id[37];
	auto_fd int kernel = open(h->kernel, O_RDONLY | O_CLOEXEC);
	auto_fd int disk = openat(b->dir, "disk", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	auto_fd int guest = vmdir_listen(b->dir, "guest");
	auto_fd int qmp = vmdir_listen(b->dir, "qmp");

	b->ram = memory_file("ram", b->need->memory_mib << 20);
	b->state = memory_file("state", 0);
	if (kernel < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "open the kernel %s", h->kernel);
	if (disk < 0 || guest < 0 || qmp < 0 || b->ram < 0 || b->state < 0)
		return err_set(e, ERR_UNAVAILABLE, EIO, "open the template's disk, sockets or memory");
	random_uuid(id);
	if (vmdir_write(b->dir, "id", id) < 0) /* whoever finds it running when we have gone can end it */
		return err_set(e, ERR_UNAVAILABLE, EIO, "write down the template's machine");
	struct launch l = { .id = id,
			    .image = b->need->image,
			    .plan = template_plan(h, b->need),
			    .fds = { -EBADF, disk, guest, qmp, b->ram, h->initrd, kernel } };
	b->qemu = qemu_new(h->qemu, b->dir, &events, b);
	qemu_start(b->qemu, &l);
	return 0;
}

/* --- disk --- */

static void free_later(uv_handle_t *h)
{
	struct build *b = h->data;

	close_fd(b->ram);
	close_fd(b->state);
	free(b);
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

struct build *build_new(const struct template_host *h, const struct template_need *need, const char *path, int dir, uint64_t boot_ms, built_fn done,
			void *ctx)
{
	struct build *b = xcalloc(1, sizeof *b);
	auto_free char *disk = xasprintf("%s/disk", path);
	const char *args[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-i", "16384", "-J", "size=4", "-E",
			       "lazy_itable_init=1,lazy_journal_init=1,nodiscard", disk, NULL };
	char path_env[] = "PATH=/usr/sbin:/sbin:/usr/bin:/bin";
	char *env[] = { path_env, NULL };
	uv_process_options_t o = { .exit_cb = on_mkfs, .file = "mke2fs", .args = (char **)(uintptr_t)args, .env = env };

	*b = (struct build){ .host = h, .need = need, .path = path, .dir = dir, .ram = -EBADF, .state = -EBADF, .boot_ms = boot_ms, .done = done, .ctx = ctx };
	b->mkfs.data = b;
	(void)vmdir_make_disk(dir, need->disk_mib, NULL); /* if not, mke2fs says so */
	int r = uv_spawn(h->qemu->loop, &b->mkfs, &o);
	if (r < 0) {
		log_warn("msg=\"mke2fs (package e2fsprogs): %s\"", uv_strerror(r));
		uv_close((uv_handle_t *)&b->mkfs, free_later);
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
	uv_close((uv_handle_t *)&b->mkfs, free_later);
}
