#include "vm_host.h"

#include "boundary/process/process.h"
#include "image/image.h"
#include "image/vm.h"
#include "warden/warden.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct parts {
	struct image_store *store;
	struct image_vm_kernel kernel;
	struct image image;
	void *guest;
	pid_t warden; /* 0 = none */
	int control;  /* it ends when this closes */
	bool *orderly; /* shared with it: we end it, and have not died */
};

static void *read_guest(size_t *ret_n)
{
	struct stat st;
	auto_fd int fd = open(GUEST_PATH, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		abort();
	void *p = xmalloc((size_t)st.st_size);
	ssize_t n = read(fd, p, (size_t)st.st_size);
	*ret_n = n < 0 ? 0 : (size_t)n;
	return p;
}

int vm_host_init(struct vm_host *h)
{
	const char *folder = getenv("CAISSON_IMAGES"), *kvm = getenv("CAISSON_TEST_KVM"); /* else emulated, which every machine can */
	struct parts *p = xcalloc(1, sizeof *p);
	struct err e;

	*h = (struct vm_host){ .data = "/tmp/caisson-vm-XXXXXX", .images = folder ? folder : "/var/lib/caisson/images", .private = p };
	p->store = image_store_new(h->images);
	if (geteuid() != 0 || image_resolve(p->store, "default", &p->image, &e) < 0) {
		fprintf(stderr, "skipped: needs root and the default image\n");
		return 77;
	}
	auto_free char *root = NULL;
	if (image_vm_kernel_make(p->store, NULL, &p->kernel, &e) < 0 || image_vm_root(p->store, p->image.digest, NULL, &root, &e) < 0) {
		fprintf(stderr, "skipped: %s\n", e.message);
		return 77;
	}
	p->orderly = mmap(NULL, sizeof *p->orderly, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p->orderly == MAP_FAILED || !mkdtemp(h->data))
		abort();
	h->digest = xstrdup(p->image.digest);
	h->options = (struct vm_options){ .data = h->data, .kernel = p->kernel.vmlinux, .modules = p->kernel.modules, .kvm = kvm && *kvm,
					  .kvm_only = kvm && *kvm, .tap = access("/dev/net/tun", R_OK | W_OK) == 0 };
	p->guest = read_guest(&h->options.guest_len);
	h->options.guest = p->guest;
	return 0;
}

static void end_warden(struct parts *p)
{
	if (p->warden == 0)
		return;
	*p->orderly = true;
	close_fd(p->control);
	while (waitpid(p->warden, NULL, 0) < 0 && errno == EINTR)
		;
	p->warden = 0;
}

/* After a test that failed, or was killed: nothing stays. */
static void sweep(const struct vm_host *h, struct warden_options *o)
{
	auto_free char *disks = xasprintf("%s/disks", h->data);
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	close(pair[0]);
	o->machines = -EBADF;
	o->end_all = true;
	(void)warden_main(pair[1], o);
	vm_data_remove(h->data);
	(void)rmdir(disks);
	(void)rmdir(h->data);
}

static struct warden_options options_of(const struct vm_host *h)
{
	const struct parts *p = h->private;

	return (struct warden_options){ .images = h->images, .data = h->data, .guest = p->guest, .guest_len = h->options.guest_len, .log_level = LOG_WARN };
}

static _Noreturn void be_warden(const struct vm_host *h, int control, int door)
{
	struct warden_options o = options_of(h);
	const struct parts *p = h->private;

	o.machines = door;
	int rc = warden_main(control, &o);
	if (!*p->orderly)
		sweep(h, &o);
	_exit(rc);
}

/* Its door for machines. */
static int start_warden(struct vm_host *h)
{
	struct parts *p = h->private;
	int pair[2], door[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) < 0)
		abort();
	*p->orderly = false;
	p->warden = fork();
	if (p->warden == 0) {
		close(pair[0]);
		close(door[0]);
		be_warden(h, pair[1], door[1]);
	}
	close(pair[1]);
	close(door[1]);
	p->control = pair[0];
	return door[0];
}

struct boundary *vm_host_open(struct vm_host *h, uv_loop_t *loop, struct err *e)
{
	struct vm_options o = h->options;
	struct parts *p = h->private;

	end_warden(p); /* as with a daemon, of which there is another one now */
	o.launcher = launcher_warden(loop, start_warden(h));
	o.volumes = h->process = process_boundary_new(loop, fcntl(p->control, F_DUPFD_CLOEXEC, 3), NULL, NULL);
	struct boundary *b = vm_boundary_new(loop, &o, e);
	if (!b) {
		o.launcher->free(o.launcher);
		h->process->ops->free(h->process);
	}
	return b;
}

void vm_host_close(struct vm_host *h, struct boundary *b)
{
	struct parts *p = h->private;

	*p->orderly = true; /* the warden may end with its last client, before end_warden */
	b->ops->free(b);
	h->process->ops->free(h->process);
}

/* Those of empty disks, which volumes are made from: no sandbox's. */
static void remove_templates(const char *disks)
{
	DIR *d = opendir(disks);

	for (const struct dirent *entry; d && (entry = readdir(d));)
		if (strncmp(entry->d_name, "template-", 9) == 0)
			(void)unlinkat(dirfd(d), entry->d_name, 0);
	if (d)
		closedir(d);
}

bool vm_host_done(struct vm_host *h)
{
	struct parts *p = h->private;

	auto_free char *run = warden_run_folder(h->data), *disks = xasprintf("%s/disks", h->data);
	end_warden(p);
	remove_templates(disks);
	vm_data_clean(h->data);
	bool clean = rmdir(disks) == 0 && rmdir(h->data) == 0 && access(run, F_OK) < 0;
	if (!clean) {
		struct warden_options o = options_of(h);
		fprintf(stderr, "something is left in %s or %s\n", h->data, run);
		sweep(h, &o);
	}
	free(p->guest);
	free(h->digest);
	image_vm_kernel_done(&p->kernel);
	image_done(&p->image);
	image_store_free(p->store);
	free(p);
	return clean;
}
