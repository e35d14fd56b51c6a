#include "contract.h"

#include "boundary/process/process.h"
#include "image/image.h"
#include "warden/doctor.h"
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/caisson-contract-XXXXXX";
static bool made;
static pid_t warden;
static bool *orderly; /* shared with the warden: we end it, and have not died */
static struct warden_options options;

static const char *images(void)
{
	const char *folder = getenv("CAISSON_IMAGES");
	return folder ? folder : "/var/lib/caisson/images";
}

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

/* One that holds on to nobody: it ends what is there. */
static void end_all(void)
{
	int pair[2];

	options.end_all = true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	close(pair[0]);
	(void)warden_main(pair[1], &options);
}

static _Noreturn void be_warden(int control)
{
	int rc = warden_main(control, &options);

	if (!*orderly) { /* a test that is killed leaves nothing either */
		char disks[80];
		end_all();
		snprintf(disks, sizeof disks, "%s/disks", dir);
		(void)rmdir(disks);
		(void)rmdir(dir);
	}
	_exit(rc);
}

static void on_lost(void *ctx, const struct err *why)
{
	(void)ctx;
	fprintf(stderr, "lost: %s\n", why->message);
}

static struct boundary *open_process(uv_loop_t *loop, const char **skip)
{
	static struct err e;
	int pair[2];

	if (doctor_require_process(images(), &e) < 0) {
		*skip = e.message;
		return NULL;
	}
	if (!made) {
		if (!mkdtemp(dir))
			abort();
		options = (struct warden_options){ .images = images(), .data = dir, .log_level = LOG_WARN };
		options.guest = read_guest(&options.guest_len);
		orderly = mmap(NULL, sizeof *orderly, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (orderly == MAP_FAILED)
			abort();
	}
	made = true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	*orderly = false;
	warden = fork();
	if (warden == 0) {
		close(pair[0]);
		be_warden(pair[1]);
	}
	close(pair[1]);
	return process_boundary_new(loop, pair[0], on_lost, NULL);
}

static void close_process(struct boundary *b)
{
	*orderly = true;
	b->ops->free(b);
	while (waitpid(warden, NULL, 0) < 0 && errno == EINTR)
		;
}

static void done(void)
{
	char disks[80], run[80], id[17];
	bool left = warden_data_id(dir, id) < 0;

	/* A last warden takes the templates of disks away, which are no sandbox's; anything else would keep the folder. */
	end_all();
	snprintf(disks, sizeof disks, "%s/disks", dir);
	snprintf(run, sizeof run, "/run/caisson/%s", id);
	left |= access(run, F_OK) == 0;
	if (left || rmdir(disks) < 0 || rmdir(dir) < 0) {
		fprintf(stderr, "something is left in %s or %s\n", dir, run);
		exit(1);
	}
}

int main(void)
{
	struct image_store *store = image_store_new(images());
	struct image image;
	struct err e;

	if (geteuid() != 0 || image_resolve(store, "default", &image, &e) < 0) {
		fprintf(stderr, "skipped: needs root and the default image\n");
		return 77;
	}
	int rc = contract_run(&(struct contract_kind){ .name = "process",
						       .open = open_process,
						       .close = close_process,
						       .done = done,
						       .image_digest = image.digest,
						       .exact_trees = true,
						       .own_files = true });
	image_done(&image);
	image_store_free(store);
	return rc;
}
