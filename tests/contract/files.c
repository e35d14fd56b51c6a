#include "suite.h"

#include "wire/guest.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

static struct drive *d = &suite.d;
static const struct str none = { NULL, 0 };

#define OP(...) drive_op(d, &(struct op_spec){ __VA_ARGS__ }, none)
#define SH(script) assert_true(got_is(drive_sh(d, script), 0, "", ""))

static bool write_text(const char *path, uint32_t flags, struct str text)
{
	return op_ok(drive_op(d, &(struct op_spec){ .kind = OP_WRITE, .path = path, .flags = flags }, text));
}

static bool reads(const char *path, uint64_t offset, uint64_t length, const char *want)
{
	struct got_op *o = OP(.kind = OP_READ, .path = path, .offset = offset, .length = length);
	bool same = o->ended && !o->failed && o->opened && o->data_ended && o->infos_n == 1 && str_eqz(buf_str(&o->data), want);
	if (!same)
		fprintf(stderr, "    read %s: %s [%s]\n", path, o->err.message, o->data.data ? o->data.data : "");
	got_op_free(o);
	return same;
}

static int errno_of_read(const char *path)
{
	return op_errno(OP(.kind = OP_READ, .path = path));
}

static void write_and_read(void **state)
{
	(void)state;
	SH("rm -rf /tmp/f; mkdir /tmp/f");
	assert_true(write_text("/tmp/f/a", 0, STR("hello\n")));
	assert_true(reads("/tmp/f/a", 0, 0, "hello\n"));
	assert_true(reads("/tmp/f/a", 2, 2, "ll"));
	assert_true(reads("/tmp/f/a", 100, 0, ""));
	assert_true(write_text("/tmp/f/a", OP_F_APPEND, STR("more")));
	assert_true(reads("/tmp/f/a", 0, 0, "hello\nmore"));
	assert_int_equal(op_errno(drive_op(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/f/a", .flags = OP_F_EXCLUSIVE }, STR("x"))), EEXIST);
	assert_true(write_text("/tmp/f/p/q/r", OP_F_PARENTS | OP_F_EXCLUSIVE, STR("deep")));
	assert_true(reads("/tmp/f/p/q/r", 0, 0, "deep"));
	assert_int_equal(op_errno(drive_op(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/f/n/o" }, STR("x"))), ENOENT);
	assert_int_equal(op_errno(drive_op(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/f/p" }, STR("x"))), EISDIR);
	SH("chmod 751 /tmp/f/a; ln -s a /tmp/f/link");
	assert_true(write_text("/tmp/f/link", 0, STR("through")));
	assert_true(got_is(drive_sh(d, "stat -c '%a %F' /tmp/f/a /tmp/f/link; cat /tmp/f/a"), 0, "751 regular file\n777 symbolic link\nthrough", ""));
	SH("ln -s /tmp/f/new /tmp/f/dangling");
	assert_true(write_text("/tmp/f/dangling", 0, STR("born")));
	assert_true(reads("/tmp/f/new", 0, 0, "born"));
	assert_true(write_text("/tmp/f/empty", 0, (struct str){ "", 0 }));
	assert_true(reads("/tmp/f/empty", 0, 0, ""));
	assert_true(got_is(drive_sh(d, "ls -A /tmp/f | grep caisson"), 1, "", ""));
}

static void large_files_and_direct_connections(void **state)
{
	(void)state;
	size_t n = 20 << 20;
	auto_free char *bytes = xmalloc(n);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)(i * 2654435761u >> 13);
	struct str all = { bytes, n };
	const int ways = suite.b->ops->caps & BOUNDARY_MANY_CONNECTIONS ? 2 : 1;
	for (int direct = 0; direct < ways; direct++) {
		struct op_spec put = { .kind = OP_WRITE, .path = "/tmp/big" }, get = { .kind = OP_READ, .path = "/tmp/big" };
		assert_true(op_ok(direct ? drive_op_direct(d, suite_open_guest(suite.id), &put, all) : drive_op(d, &put, all)));
		struct got_op *o = direct ? drive_op_direct(d, suite_open_guest(suite.id), &get, none) : drive_op(d, &get, none);
		assert_true(o->ended && !o->failed);
		assert_int_equal(o->data.len, n);
		assert_memory_equal(o->data.data, bytes, n);
		assert_int_equal(o->infos[0].size, n);
		got_op_free(o);
	}
	struct op_spec missing = { .kind = OP_READ, .path = "/tmp/nope" };
	if (ways > 1)
		assert_int_equal(op_errno(drive_op_direct(d, suite_open_guest(suite.id), &missing, none)), ENOENT);
	SH("rm /tmp/big");
}

/* Workers end faster than they are listened to: whichever is noticed first, the end or the last words, nothing is lost. */
static void many_short_operations(void **state)
{
	(void)state;
	const struct op_spec spec = { .kind = OP_STAT, .path = "/tmp" };
	struct got_op *o[40];

	for (int round = 0; round < 8; round++) {
		for (size_t i = 0; i < ARRAY_LEN(o); i++)
			o[i] = drive_op_start(d, &spec, none);
		for (size_t i = 0; i < ARRAY_LEN(o); i++) {
			assert_true(drive_until(d, &o[i]->ended));
			assert_true(!o[i]->failed && o[i]->infos_n == 1);
			got_op_free(o[i]);
		}
	}
}

static void stat_and_list(void **state)
{
	(void)state;
	SH("rm -rf /tmp/l; mkdir -p /tmp/l/d/e/f; echo 12345 > /tmp/l/file; chmod 4640 /tmp/l/file; ln -s d /tmp/l/ld; ln -s nowhere /tmp/l/dead; mkfifo /tmp/l/fifo");
	struct got_op *o = OP(.kind = OP_STAT, .path = "/tmp/l/file");
	assert_true(o->ended && !o->failed && o->infos_n == 1);
	assert_int_equal(o->infos[0].size, 6);
	assert_int_equal(o->infos[0].mode, 04640);
	assert_int_equal(o->infos[0].type, FILE_REGULAR);
	got_op_free(o);
	o = OP(.kind = OP_STAT, .path = "ld", .cwd = "/tmp/l");
	assert_int_equal(o->infos[0].type, FILE_SYMLINK);
	assert_true(o->infos[0].is_dir);
	assert_string_equal(o->infos[0].target, "d");
	got_op_free(o);
	assert_int_equal(op_errno(OP(.kind = OP_STAT, .path = "/tmp/l/none")), ENOENT);
	assert_int_equal(op_errno(OP(.kind = OP_STAT, .path = "")), EINVAL);
	assert_int_equal(op_errno(OP(.kind = OP_STAT, .path = "x", .cwd = "/not/there")), ENOENT);
	o = OP(.kind = OP_LIST, .path = "/tmp/l", .depth = 1);
	assert_int_equal(o->infos_n, 5);
	got_op_free(o);
	o = OP(.kind = OP_LIST, .path = "/tmp/l", .depth = 9);
	assert_int_equal(o->infos_n, 7); /* links are not followed down */
	bool deep = false;
	for (size_t i = 0; i < o->infos_n; i++)
		deep |= streq(o->infos[i].path, "d/e/f");
	assert_true(deep);
	got_op_free(o);
	assert_int_equal(op_errno(OP(.kind = OP_LIST, .path = "/tmp/l/file")), ENOTDIR);
}

static void a_listing_waits_for_its_reader(void **state)
{
	(void)state;
	SH("rm -rf /tmp/many; mkdir /tmp/many; cd /tmp/many; seq -f '%0200.0f' 1 6000 | xargs touch"); /* more than a window */
	struct got_op *o = drive_op_start(d, &(struct op_spec){ .kind = OP_LIST, .path = "/tmp/many" }, none);
	link_op_pause(o->op);
	drive_for(d, 300);
	assert_false(o->ended);
	link_op_resume(o->op);
	assert_true(drive_until(d, &o->ended));
	assert_false(o->failed);
	got_op_free(o);
	assert_true(op_ok(OP(.kind = OP_REMOVE, .path = "/tmp/many", .flags = OP_F_RECURSIVE)));
}

static void hostile_files(void **state)
{
	(void)state;
	SH("rm -rf /tmp/h; mkdir /tmp/h; cd /tmp/h; mkfifo fifo; truncate -s 2T sparse; ln -s loop loop; "
	   "touch \"$(printf 'n%.0s' $(seq 255))\"; touch \"$(printf 'bad\\377name')\"");
	assert_int_equal(errno_of_read("/tmp/h/fifo"), EINVAL);
	assert_int_equal(op_errno(drive_op(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/h/fifo" }, STR("x"))), ENXIO);
	assert_int_equal(errno_of_read("/tmp/h/loop"), ELOOP);
	assert_int_equal(errno_of_read("/tmp/h"), EISDIR);
	struct got_op *o = OP(.kind = OP_READ, .path = "/tmp/h/sparse", .offset = 1ull << 40, .length = 100);
	assert_true(o->ended && !o->failed && o->data.len == 100 && o->infos[0].size == 2ull << 40);
	got_op_free(o);
	o = drive_op_start(d, &(struct op_spec){ .kind = OP_READ, .path = "/tmp/h/sparse" }, none);
	while (o->data.len < 1000000)
		drive_for(d, 5);
	link_op_cancel(o->op);
	got_op_free(o);
	o = OP(.kind = OP_LIST, .path = "/tmp/h");
	bool bad = false, lengthy = false;
	for (size_t i = 0; i < o->infos_n; i++) {
		bad |= streq(o->infos[i].path, "bad\377name");
		lengthy |= strlen(o->infos[i].path) == 255;
	}
	assert_true(bad && lengthy);
	got_op_free(o);
	assert_true(reads("/tmp/h/bad\377name", 0, 0, ""));
	o = OP(.kind = OP_FIND, .path = "/tmp/h", .pattern = "x");
	assert_true(o->ended && !o->failed && o->matches_n == 0);
	got_op_free(o);
	o = OP(.kind = OP_READ, .path = "/proc/self/status");
	assert_true(o->ended && !o->failed && o->data.len > 100);
	got_op_free(o);
	assert_true(op_errno(OP(.kind = OP_READ, .path = "/proc/1/environ")) != 0);
	assert_true(op_errno(OP(.kind = OP_LIST, .path = "/proc/1/cwd/")) != 0);
	assert_true(op_errno(OP(.kind = OP_READ, .path = "/proc/1/fd/0")) != 0);
	assert_int_equal(op_errno(drive_op(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/dev/full" }, STR("x"))), ENOSPC);
	assert_true(op_ok(OP(.kind = OP_REMOVE, .path = "/tmp/h", .flags = OP_F_RECURSIVE)));
}

static void make_move_remove(void **state)
{
	(void)state;
	SH("rm -rf /tmp/m");
	assert_true(op_ok(OP(.kind = OP_MKDIR, .path = "/tmp/m/a/b", .flags = OP_F_PARENTS, .mode = 0770)));
	assert_true(op_ok(OP(.kind = OP_MKDIR, .path = "/tmp/m/a/b", .flags = OP_F_PARENTS)));
	assert_int_equal(op_errno(OP(.kind = OP_MKDIR, .path = "/tmp/m/a/b")), EEXIST);
	assert_true(got_is(drive_sh(d, "stat -c %a /tmp/m/a/b"), 0, "770\n", ""));
	assert_int_equal(op_errno(OP(.kind = OP_REMOVE, .path = "/tmp/m/a")), ENOTEMPTY);
	/* refused before anything is gone */
	static const char *const never[] = { "/tmp/m/.", "/tmp/m/a/..", "/tmp/m/a/../", "/", "//", ".", ".." };
	for (size_t i = 0; i < ARRAY_LEN(never); i++)
		assert_int_equal(op_errno(OP(.kind = OP_REMOVE, .path = never[i], .flags = OP_F_RECURSIVE)), EINVAL);
	assert_true(got_is(drive_sh(d, "ls /tmp/m/a"), 0, "b\n", ""));
	assert_true(write_text("/tmp/m/x", 0, STR("x")));
	assert_true(write_text("/tmp/m/y", 0, STR("y")));
	assert_int_equal(op_errno(OP(.kind = OP_MOVE, .path = "/tmp/m/x", .path2 = "/tmp/m/y", .flags = OP_F_EXCLUSIVE)), EEXIST);
	assert_true(op_ok(OP(.kind = OP_MOVE, .path = "/tmp/m/x", .path2 = "/tmp/m/y")));
	assert_true(reads("/tmp/m/y", 0, 0, "x"));
	assert_int_equal(op_errno(OP(.kind = OP_MOVE, .path = "/tmp/m/x", .path2 = "/tmp/m/z")), ENOENT);
	assert_true(op_ok(OP(.kind = OP_CHMOD, .path = "/tmp/m/y", .has_mode = true, .mode = 0600)));
	assert_true(got_is(drive_sh(d, "stat -c %a /tmp/m/y"), 0, "600\n", ""));
	assert_int_equal(op_errno(OP(.kind = OP_CHMOD, .path = "/tmp/m/y", .owner = "no-such-user")), ENOENT);
	/* deeper than a path can say */
	const char *dig[] = { "perl", "-e", "mkdir '/tmp/m/deep'; chdir '/tmp/m/deep'; for (1..500) { mkdir '123456789'; chdir '123456789' } symlink '/', 'here'", NULL };
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = dig }), 0, "", ""));
	assert_true(op_ok(OP(.kind = OP_REMOVE, .path = "/tmp/m", .flags = OP_F_RECURSIVE)));
	assert_true(got_is(drive_sh(d, "ls -d /tmp/m /usr 2>/dev/null"), 2, "/usr\n", ""));
	assert_int_equal(op_errno(OP(.kind = OP_REMOVE, .path = "/tmp/m")), ENOENT);
}

static void find_search_replace(void **state)
{
	(void)state;
	SH("rm -rf /tmp/s; mkdir -p /tmp/s/sub; cd /tmp/s; printf 'one\\ntwo needle\\nthree\\nneedle needle' > sub/a.txt; "
	   "printf 'needle\\0bin' > b.bin; echo x > c.TXT; ln -s / root");
	struct got_op *o = OP(.kind = OP_FIND, .path = "/tmp/s", .pattern = "needle");
	assert_true(o->ended && !o->failed);
	assert_int_equal(o->matches_n, 2);
	assert_string_equal(o->matches[0].path, "/tmp/s/sub/a.txt");
	assert_int_equal(o->matches[0].line, 2);
	assert_string_equal(o->matches[0].text, "two needle");
	assert_int_equal(o->matches[1].line, 4);
	got_op_free(o);
	o = OP(.kind = OP_SEARCH, .path = "/tmp/s", .pattern = "*.[tT]*");
	assert_int_equal(o->matches_n, 2);
	got_op_free(o);
	o = OP(.kind = OP_REPLACE, .path = "/tmp/s/sub/a.txt", .pattern = "needle", .text = "pin");
	assert_true(o->ended && !o->failed);
	assert_string_equal(pairs_get(&o->values, "replacements"), "3");
	got_op_free(o);
	assert_true(reads("/tmp/s/sub/a.txt", 0, 0, "one\ntwo pin\nthree\npin pin"));
	assert_int_equal(op_errno(OP(.kind = OP_REPLACE, .path = "/tmp/s/none", .pattern = "a", .text = "b")), ENOENT);
	assert_int_equal(op_errno(OP(.kind = OP_FIND, .path = "/tmp/s", .pattern = "")), EINVAL);
}

static void connect_inside(void **state)
{
	(void)state;
	if (drive_sh(d, "command -v python3")->end.exit_code != 0)
		return;
	const char *argv[] = { "python3", "-c",
		               "import socket\ns=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); print(s.getsockname()[1],flush=True)\n"
		               "c,_=s.accept()\nb=b''\nwhile True:\n  x=c.recv(65536)\n  if not x: break\n  b+=x\nc.sendall(b[::-1]); c.close()\n", NULL };
	struct got_run *server = drive_start(d, &(struct link_run_spec){ .argv = argv });
	while (!server->out[0].len)
		drive_for(d, 10);
	uint16_t port = (uint16_t)strtoul(server->out[0].data, NULL, 10);
	struct got_op *o = OP(.kind = OP_PORTS);
	char number[8];
	snprintf(number, sizeof number, "%u", port);
	assert_string_equal(pairs_get(&o->values, number), "loopback");
	got_op_free(o);
	size_t n = 3 << 20;
	auto_free char *bytes = xmalloc(n);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)(i >> 7);
	o = drive_op(d, &(struct op_spec){ .kind = OP_CONNECT, .port = port }, (struct str){ bytes, n });
	assert_true(o->ended && !o->failed && o->data_ended);
	assert_int_equal(o->data.len, n);
	for (size_t i = 0; i < n; i += 4097)
		assert_int_equal(o->data.data[i], bytes[n - 1 - i]);
	got_op_free(o);
	assert_true(drive_until(d, &server->ended));
	assert_int_equal(op_errno(OP(.kind = OP_CONNECT, .port = port)), ECONNREFUSED);
}

/* A file whose reader waits: all that credit allows stands in front of it, and no piece of it is too small. */
static void small_pieces_fill_the_window(void **state)
{
	enum { BYTES = GUEST_OP_WINDOW + 64 * 1024, PIECE = 50 };
	auto_free char *bytes = xmalloc(BYTES);
	bool held = false;

	(void)state;
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (char)(i ^ i >> 8);
	SH("mkdir -p /tmp/p && mkfifo /tmp/p/fifo");
	const char *argv[] = { "sh", "-c", "exec 3<>/tmp/p/fifo </tmp/p/fifo 3>&-; echo; until [ -e /tmp/p/go ]; do sleep 0.05; done; cat >/tmp/p/got", NULL };
	struct got_run *reader = drive_start(d, &(struct link_run_spec){ .argv = argv });
	while (!reader->out[0].len && !reader->ended)
		drive_for(d, 10);
	struct got_op *o = drive_op_start(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/p/fifo" }, (struct str){ bytes, BYTES });
	o->piece = PIECE;
	for (unsigned i = 0; i < 1000 * drive_patience && !held && !o->ended && !d->closed; i++) {
		held = o->opened && link_op_room(o->op) == 0 && o->input.n;
		drive_for(d, 10);
	}
	assert_true(held);
	assert_true(write_text("/tmp/p/go", 0, STR("x"))); /* by PID 1, which holds all of that */
	assert_true(drive_until(d, &o->ended));
	assert_true(op_ok(o));
	assert_true(drive_until(d, &reader->ended));
	o = OP(.kind = OP_READ, .path = "/tmp/p/got");
	assert_int_equal(o->data.len, BYTES);
	assert_memory_equal(o->data.data, bytes, BYTES);
	got_op_free(o);
}

/* A program that says much before it hears anything: the credit for what it says comes behind data that it does not take yet. */
static void credit_passes_data_that_waits(void **state)
{
	enum { UP = 4 << 20, DOWN = 8 << 20 };
	(void)state;
	if (drive_sh(d, "command -v python3")->end.exit_code != 0)
		return;
	const char *argv[] = { "python3", "-c",
		               "import socket\ns=socket.socket(); s.setsockopt(socket.SOL_SOCKET,socket.SO_RCVBUF,65536)\n"
		               "s.setsockopt(socket.SOL_SOCKET,socket.SO_SNDBUF,65536); s.bind(('127.0.0.1',0)); s.listen()\n"
		               "print(s.getsockname()[1],flush=True)\nc,_=s.accept()\nc.sendall(b'd'*(8<<20)); n=0\nwhile True:\n  x=c.recv(65536)\n"
		               "  if not x: break\n  n+=len(x)\nprint(n)\n", NULL };
	struct got_run *server = drive_start(d, &(struct link_run_spec){ .argv = argv });
	while (!server->out[0].len && !server->ended)
		drive_for(d, 10);
	uint16_t port = (uint16_t)strtoul(server->out[0].data, NULL, 10);
	auto_free char *bytes = xcalloc(1, UP);
	struct got_op *o = drive_op(d, &(struct op_spec){ .kind = OP_CONNECT, .port = port }, (struct str){ bytes, UP });
	assert_true(o->ended && !o->failed && o->data_ended);
	assert_int_equal(o->data.len, DOWN);
	got_op_free(o);
	assert_true(drive_until(d, &server->ended));
	assert_non_null(strstr(server->out[0].data, "\n4194304\n"));
}

static void questions(void **state)
{
	(void)state;
	struct got_op *o = OP(.kind = OP_USERINFO);
	assert_true(o->ended && !o->failed);
	assert_non_null(pairs_get(&o->values, "home"));
	assert_non_null(pairs_get(&o->values, "workdir"));
	got_op_free(o);
	assert_true(op_errno(OP(.kind = OP_USERINFO, .user = "nobody-known")) == ENOENT);
	o = OP(.kind = OP_DISK);
	assert_true(strtoull(pairs_get(&o->values, "bytes_total"), NULL, 10) > 0);
	got_op_free(o);
	assert_true(op_ok(OP(.kind = OP_SYNC)));
}

/* Ops and runs of another user have that user's rights; skipped by kinds that have one user only. */
static void another_user(void **state)
{
	(void)state;
	const char *argv[] = { "sh", "-c", "id -u; echo e >/dev/stderr", NULL };
	struct got_run *r = drive_run(d, &(struct link_run_spec){ .argv = argv, .user = "65534:65534" });
	if (r->end.failed && r->end.errnum == EPERM)
		return;
	assert_true(got_is(r, 0, "65534\n", "e\n"));
	SH("rm -rf /tmp/u; mkdir -m 755 /tmp/u; echo secret > /tmp/u/s; chmod 600 /tmp/u/s");
	assert_int_equal(op_errno(OP(.kind = OP_READ, .path = "/tmp/u/s", .user = "65534:65534")), EACCES);
	assert_int_equal(op_errno(drive_op(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/u/n", .user = "65534:65534" }, STR("x"))), EACCES);
	assert_int_equal(op_errno(OP(.kind = OP_LIST, .path = "/root", .user = "65534:65534")), EACCES);
	assert_int_equal(op_errno(OP(.kind = OP_REMOVE, .path = "/tmp/u", .flags = OP_F_RECURSIVE, .user = "65534:65534")), EACCES);
	const char *by_script[] = { "sh", "{script}", NULL };
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = by_script, .user = "65534:65534", .script = STR("id -g") }), 0, "65534\n", ""));
	assert_true(got_is(drive_run(d, &(struct link_run_spec){ .argv = by_script, .user = "65534:65534", .script = STR("id -g; rm $0"), .script_suffix = ".sh" }), 0, "65534\n", ""));
	const char *look[] = { "sh", "-c", "ls /proc/1/fd /proc/1/cwd/ 2>/dev/null; kill -9 1 2>/dev/null; echo $?", NULL };
	r = drive_run(d, &(struct link_run_spec){ .argv = look, .user = "65534:65534" });
	assert_true(got_is(r, 0, "1\n", ""));
}

static bool is_uid(const char *user, const char *uid)
{
	const char *argv[] = { "id", "-u", NULL };
	auto_free char *line = xasprintf("%s\n", uid);

	return got_is(drive_run(d, &(struct link_run_spec){ .argv = argv, .user = user }), 0, line, "");
}

/* However the user files change, the next run knows. */
static void users_change(void **state)
{
	(void)state;
	if (!suite.kind->own_files)
		return;
	SH("cp -p /etc/passwd /tmp/passwd");
	assert_true(is_uid("nobody", "65534"));
	SH("echo ann:x:1234:1234::/:/bin/sh >> /etc/passwd");
	assert_true(is_uid("ann", "1234"));
	drive_for(d, 3500); /* so that it counts as settled */
	assert_true(is_uid("ann", "1234"));
	SH("sed s/:1234:/:4321:/ /etc/passwd > /tmp/same-size; touch -r /etc/passwd /tmp/same-size; cat /tmp/same-size > /etc/passwd;"
	   "touch -r /tmp/same-size /etc/passwd");
	assert_true(is_uid("ann", "4321"));
	SH("mv /tmp/passwd /etc/passwd; rm /tmp/same-size");
	const char *argv[] = { "true", NULL };
	assert_true(drive_run(d, &(struct link_run_spec){ .argv = argv, .user = "ann" })->end.failed);
}

static void ops_end_with_the_connection(void **state)
{
	(void)state;
	struct got_op *o = drive_op_start(d, &(struct op_spec){ .kind = OP_WRITE, .path = "/tmp/half" }, none);
	assert_true(drive_until(d, &o->opened));
	assert_int_equal(link_op_write(o->op, STR("half")), 0);
	link_close(d->link);
	assert_true(drive_until(d, &o->ended) && drive_until(d, &d->closed));
	assert_true(o->failed);
	got_op_free(o);
	assert_true(suite_reconnect());
	drive_for(d, 200 * drive_patience);
	assert_true(got_is(drive_sh(d, "ls -A /tmp | grep -e half -e caisson"), 1, "", "")); /* not even its beginning is left */
}

const struct CMUnitTest file_tests[] = {
	cmocka_unit_test(write_and_read),
	cmocka_unit_test(large_files_and_direct_connections),
	cmocka_unit_test(stat_and_list),
	cmocka_unit_test(many_short_operations),
	cmocka_unit_test(a_listing_waits_for_its_reader),
	cmocka_unit_test(hostile_files),
	cmocka_unit_test(make_move_remove),
	cmocka_unit_test(find_search_replace),
	cmocka_unit_test(connect_inside),
	cmocka_unit_test(small_pieces_fill_the_window),
	cmocka_unit_test(credit_passes_data_that_waits),
	cmocka_unit_test(questions),
	cmocka_unit_test(another_user),
	cmocka_unit_test(users_change),
	cmocka_unit_test(ops_end_with_the_connection),
};
const size_t file_tests_n = ARRAY_LEN(file_tests);
