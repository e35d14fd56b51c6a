/* What the warden alone costs: request to answer, over its socket, with no daemon above and no command inside.
 *
 *   warden-bench IMAGES DIGEST GUEST [tries]
 *
 * Prints min, median, p95 in milliseconds of create, destroy and of bare fork + exec + wait of /bin/true in the same run. Root.
 * MEMORY_ONLY: without the disks on files. MANY=N: instead of all this N at once, by tenths, without a pause. */
#include "warden/warden.h"
#include "wire/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int daemon_fd;
static uint64_t serial;

static int ask(struct warden_request *rq)
{
	struct warden_answer a;

	rq->magic = WARDEN_MAGIC;
	rq->serial = ++serial;
	if (send(daemon_fd, rq, sizeof *rq, 0) < 0)
		return -errno;
	do {
		if (recv(daemon_fd, &a, sizeof a, 0) <= 0)
			return -EPIPE;
		if (a.kind)
			fprintf(stderr, "warden: %s\n", a.message);
		if (a.serial == 0 && a.op == WARDEN_ANSWER)
			return -EIO;
	} while (a.serial != serial || a.op != WARDEN_ANSWER);
	return a.kind ? -EIO : 0;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void report(const char *what, double *v, size_t n)
{
	qsort(v, n, sizeof *v, by_size);
	printf("%-28s min %6.2f  median %6.2f  p95 %6.2f ms\n", what, v[0], v[n / 2], v[n * 95 / 100]);
}

static void *read_file(const char *path, size_t *ret_n)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	void *p = xmalloc((size_t)st.st_size);
	ssize_t n = read(fd, p, (size_t)st.st_size);
	close(fd);
	*ret_n = n < 0 ? 0 : (size_t)n;
	return p;
}

static void bare(double *v, size_t n)
{
	char name[] = "true", *argv[] = { name, NULL };
	pid_t pid;

	for (size_t i = 0; i < n; i++) {
		uint64_t t = now_us();
		if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, NULL) == 0)
			(void)waitpid(pid, NULL, 0);
		v[i] = (double)(now_us() - t) / 1000;
	}
	report("bare fork+exec of true", v, n);
}

static void prepare(struct warden_request *rq, const char *digest, uint64_t disk_mib, bool ephemeral)
{
	*rq = (struct warden_request){
		.op = WARDEN_CREATE, .memory_mib = 256, .disk_mib = disk_mib, .pids = 64, .cpu_millis = 1000, .ephemeral = ephemeral
	};
	random_uuid(rq->id);
	snprintf(rq->image_digest, sizeof rq->image_digest, "%s", digest);
	snprintf(rq->hostname, sizeof rq->hostname, "bench");
}

static int many(const char *digest, size_t n)
{
	struct warden_request rq;
	char(*ids)[40] = xcalloc(n, sizeof *ids);
	double *v = xcalloc(n, sizeof *v);
	char text[64];
	int rc = 0;

	for (int op = WARDEN_CREATE; rc == 0; op = WARDEN_DESTROY) {
		for (size_t i = 0; i < n && rc == 0; i++) {
			prepare(&rq, digest, 64, true);
			rq.op = (uint32_t)op;
			memcpy(op == WARDEN_CREATE ? ids[i] : rq.id, op == WARDEN_CREATE ? rq.id : ids[i], sizeof rq.id);
			uint64_t t = now_us();
			rc = ask(&rq);
			v[i] = (double)(now_us() - t) / 1000;
		}
		for (size_t tenth = 0; tenth < 10 && rc == 0 && n >= 10; tenth++) {
			snprintf(text, sizeof text, "%s, tenth %zu", op == WARDEN_CREATE ? "create" : "destroy", tenth + 1);
			report(text, v + n / 10 * tenth, n / 10);
		}
		if (op == WARDEN_DESTROY)
			break;
	}
	free(ids);
	free(v);
	return rc;
}

static int kind_of(const char *title, const char *digest, uint64_t disk_mib, bool ephemeral, size_t n)
{
	double *create = xcalloc(n, sizeof *create), *destroy = xcalloc(n, sizeof *destroy);
	char text[64];
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		struct warden_request rq;
		prepare(&rq, digest, disk_mib, ephemeral);
		usleep(5000); /* the idle moment in which the warden makes things in advance */
		uint64_t t0 = now_us();
		rc = ask(&rq);
		uint64_t t1 = now_us();
		if (rc == 0) {
			rq.op = WARDEN_DESTROY;
			rc = ask(&rq);
		}
		create[i] = (double)(t1 - t0) / 1000;
		destroy[i] = (double)(now_us() - t1) / 1000;
	}
	if (rc == 0) {
		snprintf(text, sizeof text, "create, %s", title);
		report(text, create, n);
		snprintf(text, sizeof text, "destroy, %s", title);
		report(text, destroy, n);
	}
	free(create);
	free(destroy);
	return rc;
}

int main(int argc, char **argv)
{
	char data[] = "/tmp/warden-bench-XXXXXX";
	int pair[2];

	if (argc < 4 || !mkdtemp(data) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		fprintf(stderr, "usage: warden-bench IMAGES DIGEST GUEST [tries]\n");
		return 2;
	}
	uint64_t n = 100;
	if (argc > 4 && parse_u64(str_of(argv[4]), 100000, &n) < 0)
		return 2;
	struct warden_options o = { .images = argv[1], .data = data, .log_level = LOG_WARN, .old_kernel = getenv("OLD_KERNEL") != NULL };
	o.guest = read_file(argv[3], &o.guest_len);
	pid_t pid = fork();
	if (pid == 0) {
		close(pair[0]);
		_exit(warden_main(pair[1], &o));
	}
	close(pair[1]);
	daemon_fd = pair[0];
	double *v = xcalloc(n, sizeof *v);
	bare(v, n);
	free(v);
	uint64_t at_once = 0;
	if (getenv("MANY") && parse_u64(str_of(getenv("MANY")), 16384, &at_once) < 0)
		return 2;
	int rc = at_once ? many(argv[2], at_once) : kind_of("disk in memory", argv[2], 64, true, n);
	if (rc == 0 && !at_once && !getenv("MEMORY_ONLY"))
		rc = kind_of("disk on ext4, kept", argv[2], 1024, false, n);
	if (rc == 0 && !at_once && !getenv("MEMORY_ONLY"))
		rc = kind_of("disk on ext4, ephemeral", argv[2], 1024, true, n);
	close(daemon_fd);
	(void)waitpid(pid, NULL, 0);
	char *args[] = { (char[]){ "rm" }, (char[]){ "-rf" }, data, NULL };
	if (posix_spawn(&pid, "/bin/rm", NULL, NULL, args, NULL) == 0)
		(void)waitpid(pid, NULL, 0);
	return rc == 0 ? 0 : 1;
}
