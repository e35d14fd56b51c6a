/* The server of volumes on a folder of ours, asked as a machine's kernel would, and as one that somebody has taken over. */
#include "volumes/server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char nonce[LINE_NONCE] = "0123456789abcdef";
enum { FILES = 8192, READ_LOCK = 0, WRITE_LOCK = 1, NO_LOCK = 2 };

struct world {
	char path[40]; /* of a folder with `outside` and the volume, `in` */
	int folder, line;
	pid_t server;
	uint64_t unique;
	struct buf in;
};
static struct world w;

struct reply {
	int error;
	char body[256];
	size_t n;
};

static uint64_t u64_at(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

static void send_all(const void *p, size_t n)
{
	assert_int_equal(send(w.line, p, n, MSG_NOSIGNAL), n);
}

static void fill(bool *ret_over)
{
	char *at = buf_reserve(&w.in, FUSE_MESSAGE_MAX);
	ssize_t n = recv(w.line, at, FUSE_MESSAGE_MAX, 0);

	*ret_over = n <= 0;
	if (n > 0)
		buf_grew(&w.in, (size_t)n);
}

/* The next answer; `unique` of it. */
static struct reply receive(uint64_t *ret_unique)
{
	struct reply r = { 0 };
	struct line_frame f;
	bool over = false;
	ssize_t n;

	while ((n = line_frame_next(buf_str(&w.in), &f)) == 0 && !over)
		fill(&over);
	assert_true(n > 0 && f.payload.n >= FUSE_OUT_HEAD);
	int32_t error;
	memcpy(&error, f.payload.p + 4, sizeof error);
	r.error = -error;
	*ret_unique = u64_at(f.payload.p + 8);
	r.n = MIN(f.payload.n - FUSE_OUT_HEAD, sizeof r.body);
	memcpy(r.body, f.payload.p + FUSE_OUT_HEAD, r.n);
	buf_consume(&w.in, (size_t)n);
	return r;
}

static uint64_t post(uint32_t op, uint64_t node, const void *body, size_t n)
{
	char message[LINE_HEAD + FUSE_IN_HEAD + 8192];
	const uint32_t length = (uint32_t)(FUSE_IN_HEAD + n), ids[3] = { geteuid() ? geteuid() : 1000, geteuid() ? getegid() : 1000, 1 };

	line_head_put(message, LINE_MESSAGE, 0, length);
	char *p = message + LINE_HEAD;
	w.unique += 2;
	memset(p, 0, FUSE_IN_HEAD);
	memcpy(p, &length, 4);
	memcpy(p + 4, &op, 4);
	memcpy(p + 8, &w.unique, 8);
	memcpy(p + 16, &node, 8);
	memcpy(p + 24, ids, sizeof ids);
	memcpy(p + FUSE_IN_HEAD, body, n);
	send_all(message, LINE_HEAD + length);
	return w.unique;
}

static struct reply ask(uint32_t op, uint64_t node, const void *body, size_t n)
{
	uint64_t unique = post(op, node, body, n), got;
	struct reply r = receive(&got);

	assert_int_equal(got, unique);
	return r;
}

#define NAMED(op, node, name) ask(op, node, name, sizeof name)

static uint64_t look_up(uint64_t node, const char *name)
{
	struct reply r = ask(FUSE_OP_LOOKUP, node, name, strlen(name) + 1);

	return r.error ? 0 : u64_at(r.body);
}

static struct reply open_node(uint64_t node, int flags)
{
	const uint32_t body[2] = { (uint32_t)flags, 0 };

	return ask(FUSE_OP_OPEN, node, body, sizeof body);
}

static uint64_t opened(uint64_t node, int flags)
{
	struct reply r = open_node(node, flags);

	assert_int_equal(r.error, 0);
	return u64_at(r.body);
}

static struct reply write_at(uint64_t handle, uint64_t offset, uint32_t size, const char *bytes, size_t n)
{
	char body[40 + 4096] = { 0 };

	memcpy(body, &handle, 8);
	memcpy(body + 8, &offset, 8);
	memcpy(body + 16, &size, 4);
	memcpy(body + 40, bytes, n);
	return ask(FUSE_OP_WRITE, FUSE_ROOT_ID, body, 40 + n);
}

static struct reply read_at(uint64_t handle, uint64_t offset, uint32_t size)
{
	char body[40] = { 0 };

	memcpy(body, &handle, 8);
	memcpy(body + 8, &offset, 8);
	memcpy(body + 16, &size, 4);
	return ask(FUSE_OP_READ, FUSE_ROOT_ID, body, sizeof body);
}

static uint64_t create(const char *name)
{
	char body[16 + 64] = { 0 };
	const uint32_t fixed[4] = { O_RDWR, 0644, 0, 0 };

	memcpy(body, fixed, sizeof fixed);
	memcpy(body + 16, name, strlen(name) + 1);
	struct reply r = ask(FUSE_OP_CREATE, FUSE_ROOT_ID, body, 16 + strlen(name) + 1);
	assert_int_equal(r.error, 0);
	return u64_at(r.body + 128);
}

static int begin(void **state)
{
	static const char garbage[] = "\xff\xff\xff\xff garbage 0123456789abcde";
	int pair[2];
	bool over = false;

	(void)state;
	w = (struct world){ .path = "/tmp/volumes-XXXXXX" };
	buf_init(&w.in, 1 << 20);
	if (!mkdtemp(w.path) || (w.folder = open(w.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || mkdirat(w.folder, "in", 0777) < 0 ||
	    fchmodat(w.folder, "in", 0777, 0) < 0 || mkdirat(w.folder, "outside", 0755) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	w.line = pair[0];
	w.server = fork();
	if (w.server == 0) {
		int root = openat(w.folder, "in", O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)close(pair[0]);
		(void)prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
		(void)umask(0);
		_exit(volumes_serve(pair[1], nonce, &root, 1, FILES) < 0 ? 1 : 0);
	}
	(void)close(pair[1]);
	/* what another has left on the line is nobody's request */
	send_all(garbage, sizeof garbage - 1);
	send_all(nonce, sizeof nonce);
	while (w.in.len < LINE_NONCE && !over)
		fill(&over);
	if (over || memcmp(w.in.data, nonce, LINE_NONCE) != 0)
		return -1;
	buf_consume(&w.in, LINE_NONCE);
	return 0;
}

static int end(void **state)
{
	int status;

	(void)state;
	close_fd(w.line);
	(void)waitpid(w.server, &status, 0);
	auto_free char *rm = xasprintf("rm -rf %s", w.path);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", rm, (char *)NULL);
		_exit(1);
	}
	(void)waitpid(pid, NULL, 0);
	close_fd(w.folder);
	buf_done(&w.in);
	return 0;
}

static int server_status(void)
{
	int status;
	bool over = false;

	while (!over)
		fill(&over);
	assert_int_equal(waitpid(w.server, &status, 0), w.server);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void files_and_folders(void **state)
{
	(void)state;
	struct stat st;
	uint64_t handle = create("a");

	assert_int_equal(fstatat(w.folder, "in/a", &st, 0), 0);
	assert_int_equal(st.st_uid, geteuid() ? geteuid() : 1000); /* whose request it was, and we are who we were */
	assert_int_equal(write_at(handle, 0, 5, "hello", 5).error, 0);
	struct reply r = read_at(handle, 1, 100);
	assert_true(r.n == 4 && memcmp(r.body, "ello", 4) == 0);
	const uint64_t node = look_up(FUSE_ROOT_ID, "a");
	assert_true(node > FUSE_ROOT_ID && node == look_up(FUSE_ROOT_ID, "a"));
	assert_int_equal(look_up(FUSE_ROOT_ID, "b"), 0);
	char mkdir_body[] = "\xed\x01\0\0\0\0\0\0dir"; /* 0755 */
	assert_int_equal(ask(FUSE_OP_MKDIR, FUSE_ROOT_ID, mkdir_body, sizeof mkdir_body).error, 0);
	assert_int_equal(NAMED(FUSE_OP_RMDIR, FUSE_ROOT_ID, "dir").error, 0);
	/* removed while it is open: it is still there for who has it */
	assert_int_equal(NAMED(FUSE_OP_UNLINK, FUSE_ROOT_ID, "a").error, 0);
	assert_int_equal(read_at(handle, 0, 5).n, 5);
	assert_int_equal(ask(99, FUSE_ROOT_ID, "", 0).error, ENOSYS);
}

static void no_way_out_of_the_folder(void **state)
{
	(void)state;
	char name[] = "x", link[] = "out\0../outside", deep[300];

	assert_int_equal(NAMED(FUSE_OP_LOOKUP, FUSE_ROOT_ID, "..").error, EINVAL);
	assert_int_equal(NAMED(FUSE_OP_LOOKUP, FUSE_ROOT_ID, ".").error, EINVAL);
	assert_int_equal(NAMED(FUSE_OP_LOOKUP, FUSE_ROOT_ID, "../outside").error, EINVAL);
	assert_int_equal(NAMED(FUSE_OP_LOOKUP, FUSE_ROOT_ID, "/etc").error, EINVAL);
	assert_int_equal(NAMED(FUSE_OP_LOOKUP, FUSE_ROOT_ID, "").error, EINVAL);
	assert_int_equal(ask(FUSE_OP_LOOKUP, FUSE_ROOT_ID, name, 1).error, EINVAL); /* no end */
	memset(deep, 'd', sizeof deep);
	deep[sizeof deep - 1] = '\0';
	assert_int_equal(ask(FUSE_OP_LOOKUP, FUSE_ROOT_ID, deep, sizeof deep).error, ENAMETOOLONG);
	/* a link out is a link: it is read, not followed */
	struct reply r = ask(FUSE_OP_SYMLINK, FUSE_ROOT_ID, link, sizeof link);
	assert_int_equal(r.error, 0);
	const uint64_t node = u64_at(r.body);
	assert_int_equal(NAMED(FUSE_OP_LOOKUP, node, "x").error, ENOTDIR);
	assert_int_equal(NAMED(FUSE_OP_UNLINK, node, "x").error, ENOTDIR);
	assert_int_equal(open_node(node, O_RDONLY).error, EINVAL);
	const uint32_t folder[2] = { O_RDONLY, 0 };
	assert_int_equal(ask(FUSE_OP_OPENDIR, node, folder, sizeof folder).error, ENOTDIR);
	char body[16 + 4] = { 2, 0, 0, 0, (char)0xa4, 1 };
	memcpy(body + 16, "out", 4);
	assert_int_equal(ask(FUSE_OP_CREATE, FUSE_ROOT_ID, body, sizeof body).error, ESTALE); /* is there, and is for the kernel to look at */
	char rename_body[8 + 4 + 11] = { 0 };
	memcpy(rename_body + 8, "out\0../outside", 15 - 1);
	assert_int_equal(ask(FUSE_OP_RENAME, FUSE_ROOT_ID, rename_body, sizeof rename_body).error, EINVAL);
}

static void no_devices_and_no_waiting(void **state)
{
	(void)state;
	char device[16 + 2] = { 0 }, fifo[16 + 2] = { 0 };
	const uint32_t block = S_IFBLK | 0666, character = S_IFCHR | 0666, pipe_mode = S_IFIFO | 0666;

	device[16] = fifo[16] = 'f';
	memcpy(device, &block, 4);
	assert_int_equal(ask(FUSE_OP_MKNOD, FUSE_ROOT_ID, device, sizeof device).error, EPERM);
	memcpy(device, &character, 4);
	assert_int_equal(ask(FUSE_OP_MKNOD, FUSE_ROOT_ID, device, sizeof device).error, EPERM);
	memcpy(fifo, &pipe_mode, 4);
	struct reply r = ask(FUSE_OP_MKNOD, FUSE_ROOT_ID, fifo, sizeof fifo);
	assert_int_equal(r.error, 0);
	assert_int_equal(open_node(u64_at(r.body), O_RDONLY).error, EINVAL);
	assert_int_equal(open_node(u64_at(r.body), O_WRONLY).error, EINVAL);
}

static void numbers_that_are_none(void **state)
{
	(void)state;
	static const uint64_t bad[] = { 0, 2, 77, FILES, UINT32_MAX, UINT64_MAX, UINT64_MAX - 1 };
	const uint64_t lookups = UINT64_MAX;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(ask(FUSE_OP_GETATTR, bad[i], "0123456789abcdef", 16).error, ESTALE);
		(void)post(FUSE_OP_FORGET, bad[i], &lookups, 8);
		assert_int_equal(read_at(bad[i], 0, 10).error, EBADF);
		assert_int_equal(write_at(bad[i], 0, 1, "x", 1).error, EBADF);
	}
	(void)post(FUSE_OP_FORGET, FUSE_ROOT_ID, &lookups, 8); /* the root stays */
	const uint64_t handle = create("a"), node = look_up(FUSE_ROOT_ID, "a");
	assert_int_equal(read_at(handle, 0, FUSE_DATA_MAX + 1).error, EINVAL);
	assert_int_equal(read_at(handle, UINT64_MAX, 10).error, EINVAL);
	assert_int_equal(write_at(handle, INT64_MAX, 1, "x", 1).error, EINVAL);
	(void)post(FUSE_OP_FORGET, node, &lookups, 8); /* forgotten more often than known; what is open stays open */
	assert_int_equal(ask(FUSE_OP_GETATTR, node, "0123456789abcdef", 16).error, ESTALE);
	assert_int_equal(write_at(handle, 0, 1, "x", 1).error, 0);
}

static void what_is_no_request_ends_the_line(void **state)
{
	static const char *const lies[] = { "\xff\xff\xff\x7f\0\0\0\0", "\x10\0\0\0\x07\0\0\0", "\x10\0\0\0\0\0\x01\0", "\0\0\0\0\0\0\0\0", "\x08\0\0\0\x01\0\0\0" };

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		if (i > 0)
			assert_int_equal(begin(state), 0);
		send_all(lies[i], LINE_HEAD);
		assert_int_equal(server_status(), 1);
		if (i + 1 < ARRAY_LEN(lies))
			assert_int_equal(end(state), 0);
	}
	assert_int_equal(end(state), 0);
	assert_int_equal(begin(state), 0);
	const uint64_t handle = create("a");
	char body[40 + 3] = { 0 }; /* says 100 bytes, brings 3 */
	memcpy(body, &handle, 8);
	body[16] = 100;
	(void)post(FUSE_OP_WRITE, FUSE_ROOT_ID, body, sizeof body);
	assert_int_equal(server_status(), 1);
}

static uint64_t lock(uint32_t op, uint64_t node, uint64_t handle, uint64_t owner, uint32_t type, bool whole)
{
	char body[48] = { 0 };
	const uint64_t last = INT64_MAX;
	const uint32_t flags = whole;

	memcpy(body, &handle, 8);
	memcpy(body + 8, &owner, 8);
	memcpy(body + 24, &last, 8);
	memcpy(body + 32, &type, 4);
	memcpy(body + 40, &flags, 4);
	return post(op, node, body, sizeof body);
}

static int answer_to(uint64_t unique)
{
	uint64_t got;
	struct reply r = receive(&got);

	assert_int_equal(got, unique);
	return r.error;
}

static void locks_hold_and_wait(void **state)
{
	(void)state;
	const uint64_t one = create("a"), node = look_up(FUSE_ROOT_ID, "a"), two = opened(node, O_RDWR);

	for (int whole = 0; whole < 2; whole++) {
		assert_int_equal(answer_to(lock(FUSE_OP_SETLK, node, one, 1, WRITE_LOCK, whole)), 0);
		assert_int_equal(answer_to(lock(FUSE_OP_SETLK, node, two, 2, READ_LOCK, whole)), EAGAIN);
		const uint64_t waits = lock(FUSE_OP_SETLKW, node, two, 2, WRITE_LOCK, whole), given_up = lock(FUSE_OP_SETLKW, node, two, 3, READ_LOCK, whole);
		(void)post(FUSE_OP_INTERRUPT, 0, &given_up, 8);
		assert_int_equal(answer_to(given_up), EINTR);
		const uint64_t freed = lock(FUSE_OP_SETLK, node, one, 1, NO_LOCK, whole);
		assert_int_equal(answer_to(freed), 0);
		assert_int_equal(answer_to(waits), 0);
		assert_int_equal(answer_to(lock(FUSE_OP_SETLK, node, one, 1, READ_LOCK, whole)), EAGAIN);
		assert_int_equal(answer_to(lock(FUSE_OP_SETLK, node, two, 2, NO_LOCK, whole)), 0);
	}
	/* a process that closes the file has none on it any more */
	assert_int_equal(answer_to(lock(FUSE_OP_SETLK, node, one, 1, WRITE_LOCK, false)), 0);
	char flush[24] = { 0 };
	memcpy(flush, &one, 8);
	flush[16] = 1;
	assert_int_equal(ask(FUSE_OP_FLUSH, node, flush, sizeof flush).error, 0);
	assert_int_equal(answer_to(lock(FUSE_OP_SETLK, node, two, 2, WRITE_LOCK, false)), 0);
}

/* Requests of every kind with bytes that a generator chose: each is answered, and what is beside the folder is as it was. */
static void whatever_is_asked(void **state)
{
	(void)state;
	uint64_t seed = 42, got;
	char body[512];
	struct stat before, after;

	(void)create("a");
	assert_int_equal(fstatat(w.folder, "outside", &before, 0), 0);
	for (int i = 0; i < 4000; i++) {
		for (size_t k = 0; k < sizeof body; k++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			body[k] = (char)(seed >> 60 < 9 ? 0 : seed >> 40);
		}
		static const char *const names[] = { "a", "b", "..", "x/y" };
		memcpy(body + 88 + 80 * (i % 2), names[i % 4], strlen(names[i % 4]) + 1);
		const uint32_t op = (uint32_t)(seed >> 33) % (FUSE_OP_END + 4);
		const size_t n = op == FUSE_OP_WRITE ? 40 : op == FUSE_OP_BATCH_FORGET ? 8 : 88 + (size_t)(seed >> 50) % 400;
		if (op == FUSE_OP_WRITE)
			memset(body + 16, 0, 4);
		if (op == FUSE_OP_BATCH_FORGET)
			memset(body, 0, 8);
		const uint64_t unique = post(op, (seed >> 20) % 6, body, n);
		if (op == FUSE_OP_SETLKW) { /* may have to wait */
			const uint64_t it = unique;
			(void)post(FUSE_OP_INTERRUPT, 0, &it, 8);
		}
		if (!fuse_op_answered(op))
			continue;
		(void)receive(&got);
		assert_int_equal(got, unique);
	}
	assert_int_equal(fstatat(w.folder, "outside", &after, 0), 0);
	assert_true(before.st_mode == after.st_mode && before.st_nlink == after.st_nlink && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
	assert_int_equal(ask(FUSE_OP_GETATTR, FUSE_ROOT_ID, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16).error, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files_and_folders, begin, end),
		cmocka_unit_test_setup_teardown(no_way_out_of_the_folder, begin, end),
		cmocka_unit_test_setup_teardown(no_devices_and_no_waiting, begin, end),
		cmocka_unit_test_setup_teardown(numbers_that_are_none, begin, end),
		cmocka_unit_test_setup_teardown(what_is_no_request_ends_the_line, begin, end),
		cmocka_unit_test_setup_teardown(locks_hold_and_wait, begin, end),
		cmocka_unit_test_setup_teardown(whatever_is_asked, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
