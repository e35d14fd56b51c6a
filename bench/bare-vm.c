#include "bare-vm.h"

#include "boundary/vm/ask.h"
#include "boundary/vm/qemu.h"
#include "boundary/vm/template_int.h"
#include "boundary/vm/vmdir.h"
#include "core/link.h"
#include "sys/process.h"
#include "wire/guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct bare_vm {
	struct launcher launcher;
	uv_loop_t loop;
	struct qemu_host host;
	struct qemu *qemu;
	struct link *link;
	struct vmm_plan plan;
	char *image;
	int dir, erofs, ram, state, disk, tap;
	uint64_t began, run;
	double took;
	bool set_up; /* it is to be told who it is */
	bool done;   /* what is waited for */
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void until_done(struct bare_vm *b)
{
	while (!b->done)
		uv_run(&b->loop, UV_RUN_ONCE);
	b->done = false;
}

/* --- a launcher that does nothing but fork and exec --- */

static _Noreturn void be_qemu(const struct bare_vm *b, const struct launch *l)
{
	int from[VMM_FDS];

	for (int i = 0; i < VMM_FDS; i++) { /* out of the way of the numbers they are to have */
		int fd = i == VMM_FD_IMAGE - VMM_FD_FIRST ? b->erofs : i == VMM_FD_TAP - VMM_FD_FIRST ? b->tap : i == VMM_FD_VOLUMES - VMM_FD_FIRST ? -EBADF : l->fds[i];
		from[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD, 100);
	}
	int log = fcntl(l->log, F_DUPFD, 100);
	(void)dup2(log, 2);
	for (int i = 0; i < VMM_FDS; i++)
		if (from[i] >= 0)
			(void)dup2(from[i], VMM_FD_FIRST + i);
	(void)close_range(VMM_FD_END, ~0U, 0);
	execv(VMM_PROGRAM, vmm_argv(VMM_PROGRAM, &l->plan));
	_exit(127);
}

static void launch(struct launcher *l, const struct launch *what, launched_fn done, void *ctx)
{
	struct bare_vm *b = container_of(l, struct bare_vm, launcher);

	pid_t pid = fork();
	if (pid == 0)
		be_qemu(b, what);
	int pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		die("start QEMU");
	done(ctx, NULL, pid, pidfd);
}

static void kill_it(struct launcher *l, const char *id, int pidfd)
{
	(void)l;
	(void)id;
	(void)process_signal(pidfd, SIGKILL);
}

static void nothing_is_left(struct launcher *l, const char *id, swept_fn done, void *ctx)
{
	(void)l;
	(void)id;
	done(ctx, false);
}

/* --- the machine --- */

static void on_hello(void *ctx, const struct link_run_state *runs, size_t n)
{
	struct bare_vm *b = ctx;

	(void)runs;
	(void)n;
	b->took = (double)(now_us() - b->began) / 1000;
	b->done = true;
}

static void on_run_output(void *ctx, uint64_t run, int stream, uint64_t offset, struct str bytes)
{
	struct bare_vm *b = ctx;

	link_run_ack(b->link, run, stream, offset + bytes.n);
}

static void on_run_end(void *ctx, uint64_t run, const struct link_run_end *end)
{
	struct bare_vm *b = ctx;

	if (end->failed || end->exit_code != 0)
		die("a run in the bare machine failed");
	b->took = (double)(now_us() - b->began) / 1000;
	link_run_release(b->link, run);
	b->done = true;
}

static void on_closed(void *ctx, const struct err *why)
{
	(void)ctx;
	fprintf(stderr, "bench: the bare machine: %s\n", why ? why->message : "closed");
	exit(1);
}

static void on_started(void *ctx, const struct err *e)
{
	struct bare_vm *b = ctx;

	auto_free char *path = xasprintf("/proc/self/fd/%d", b->state);
	int state = open(path, O_RDONLY | O_CLOEXEC);
	if (e || state < 0)
		die("start the bare machine");
	qemu_restore(b->qemu, state);
}

/* As a create tells it. */
static void put_setup(void *ctx, struct buf *to)
{
	struct bare_vm *b = ctx;
	char seed[80], id[37], machine[33];
	struct guest_setup s = { .hostname = id, .machine_id = machine, .user = "daytona", .seed = { seed, sizeof seed }, .time_ns = (uint64_t)time(NULL) * 1000000000, .pids = 512,
				 .link = b->plan.tap ? GUEST_LINK_DOWN : GUEST_LINK_NONE, .mac = { 2, 0, 0, 0, 0, 1 }, .sudo = GUEST_SUDO_YES };

	random_bytes(seed, sizeof seed);
	random_uuid(id);
	for (size_t i = 0; i < sizeof machine - 1; i++)
		machine[i] = "0123456789abcdef"[seed[i] & 15];
	machine[sizeof machine - 1] = '\0';
	(void)guest_setup_put(to, ASK_ID, &s);
}

static void on_set_up(void *ctx, const struct err *e)
{
	struct bare_vm *b = ctx;

	if (e) {
		fprintf(stderr, "bench: the bare machine: %s\n", e->message);
		exit(1);
	}
	b->took = (double)(now_us() - b->began) / 1000;
	b->done = true;
}

static void on_restored(void *ctx)
{
	static const struct link_events events = { .on_hello = on_hello, .on_run_output = on_run_output, .on_run_end = on_run_end, .on_closed = on_closed };
	struct bare_vm *b = ctx;
	int fd = vmdir_connect(b->dir, "guest");

	if (fd < 0)
		die("connect to the bare machine");
	if (b->set_up)
		(void)ask_new(&b->loop, fd, &(struct ask_what){ put_setup, GUEST_SETUP_DONE, ASK_BETWEEN, 60000 }, on_set_up, b);
	else
		b->link = link_new(&b->loop, fd, &events, b);
}

static void on_ended(void *ctx, const struct err *why)
{
	struct bare_vm *b = ctx;

	(void)why;
	b->done = true;
}

double bare_vm_restore(struct bare_vm *b, bool set_up)
{
	static const struct qemu_events events = { .started = on_started, .ended = on_ended, .restored = on_restored };
	struct err e;

	(void)unlinkat(b->dir, "disk", 0);
	auto_fd int disk = vmdir_new_disk(b->dir);
	if (disk < 0 || vmdir_fill_disk(disk, b->disk, &e) < 0)
		die("copy the disk");
	auto_fd int guest = vmdir_listen(b->dir, "guest"), qmp = vmdir_listen(b->dir, "qmp");
	const struct launch l = { .id = "bare", .image = b->image, .plan = b->plan, .fds = { -EBADF, disk, guest, qmp, b->ram, -EBADF, -EBADF, -EBADF } };
	struct launch copy = l;
	b->set_up = set_up;
	b->began = now_us();
	b->qemu = qemu_new(&b->host, b->dir, &events, b);
	qemu_start(b->qemu, &copy);
	until_done(b);
	return b->took;
}

double bare_vm_run(struct bare_vm *b, const char *const *argv)
{
	b->began = now_us();
	link_run_start(b->link, ++b->run, &(struct link_run_spec){ .argv = argv });
	until_done(b);
	return b->took;
}

void bare_vm_end(struct bare_vm *b)
{
	if (b->link)
		link_free(take_ptr(&b->link));
	qemu_kill(b->qemu);
	until_done(b);
	qemu_free(take_ptr(&b->qemu));
	b->run = 0;
	(void)uv_run(&b->loop, UV_RUN_NOWAIT);
}

/* --- its template --- */

static int memory_copy(int dir, const char *name)
{
	auto_fd int from = openat(dir, name, O_RDONLY | O_CLOEXEC);
	auto_fd int to = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	off_t size = from < 0 ? -1 : lseek(from, 0, SEEK_END), data = 0, hole = 0;
	static char block[1 << 20];

	if (size < 0 || to < 0 || ftruncate(to, size) < 0)
		die(name);
	while ((data = lseek(from, hole, SEEK_DATA)) >= 0) {
		hole = lseek(from, data, SEEK_HOLE);
		for (ssize_t n; data < hole; data += n) {
			n = pread(from, block, MIN(sizeof block, (size_t)(hole - data)), data);
			if (n <= 0 || pwrite(to, block, (size_t)n, data) != n)
				die(name);
		}
	}
	if (template_seal(to) < 0)
		die(name);
	return take_fd(&to);
}

static bool take_template(struct bare_vm *b, int dir, uint64_t memory_mib)
{
	struct template_need need = { 0 };
	struct template_sums sums;
	auto_free char *host = NULL;

	if (template_meta_read(dir, &need, &host, &sums) < 0)
		return false;
	b->image = (char *)(uintptr_t)need.image;
	if (need.memory_mib != memory_mib || need.cpus != 1)
		return false;
	b->ram = memory_copy(dir, "ram");
	b->state = memory_copy(dir, "state");
	b->disk = openat(dir, "disk", O_RDONLY | O_CLOEXEC);
	return b->disk >= 0;
}

/* As the machines of a server have one, in a network namespace of its own, which nothing of ours needs: all that we talk over are unix sockets. */
static int make_tap(void)
{
	struct ifreq rq = { .ifr_name = "bare", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	auto_fd int fd = unshare(CLONE_NEWNET) < 0 ? -EBADF : open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	return fd < 0 || ioctl(fd, TUNSETIFF, &rq) < 0 ? -EBADF : take_fd(&fd);
}

struct bare_vm *bare_vm_new(const char *templates, const char *images, uint64_t memory_mib, bool kvm, const char *path)
{
	struct bare_vm *b = xcalloc(1, sizeof *b);
	DIR *d = opendir(templates);
	bool found = false;

	*b = (struct bare_vm){ .launcher = { launch, kill_it, nothing_is_left, NULL }, .ram = -EBADF, .state = -EBADF, .disk = -EBADF,
			       .plan = { .begin = VMM_INCOMING, .ram = VMM_RAM_COPIED, .kvm = kvm, .cpu_millis = 1000, .memory_mib = memory_mib } };
	for (const struct dirent *entry; d && !found && (entry = readdir(d));) {
		auto_fd int dir = entry->d_name[0] == '.' ? -EBADF : vmdir_open(templates, entry->d_name);
		free(take_ptr(&b->image));
		found = dir >= 0 && take_template(b, dir, memory_mib);
	}
	if (d)
		closedir(d);
	if (!found)
		die("there is no such template");
	auto_free char *erofs = xasprintf("%s/sha256-%s/root.erofs", images, b->image + strlen("sha256:"));
	b->erofs = open(erofs, O_RDONLY | O_CLOEXEC);
	b->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->erofs < 0 || b->dir < 0)
		die(erofs);
	b->tap = make_tap();
	b->plan.tap = b->tap >= 0; /* a server that finds the same host gives its machines one, too */
	uv_loop_init(&b->loop);
	b->host = (struct qemu_host){ &b->loop, &b->launcher, 10000 };
	return b;
}

void bare_vm_free(struct bare_vm *b)
{
	static const char *const names[] = { "disk", "guest", "qmp", "vmm" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		(void)unlinkat(b->dir, names[i], 0);
	while (uv_loop_close(&b->loop) == UV_EBUSY)
		(void)uv_run(&b->loop, UV_RUN_ONCE);
	close_fd(b->dir);
	close_fd(b->erofs);
	close_fd(b->ram);
	close_fd(b->state);
	close_fd(b->disk);
	close_fd(b->tap);
	free(b->image);
	free(b);
}
