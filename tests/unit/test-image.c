#include "image/build.h"
#include "image/ref.h"
#include "image/refs.h"
#include "image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

/* Every test gets an empty folder of its own, `place`, and a store in place/images. */
static char place[64];
static struct image_store *store;

static char *at(const char *name)
{
	return xasprintf("%s/%s", place, name);
}

static int setup(void **state)
{
	(void)state;
	snprintf(place, sizeof place, "/tmp/caisson-test-image.XXXXXX");
	if (!mkdtemp(place))
		return -1;
	auto_free char *folder = at("images");
	store = image_store_new(folder);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	image_store_free(store);
	return tree_remove(AT_FDCWD, place, NULL);
}

static int tool(const char *const *argv)
{
	pid_t pid = fork();
	if (pid == 0) {
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	int status;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#define TOOL(...) assert_int_equal(tool((const char *const[]){ __VA_ARGS__, NULL }), 0)

static void put(const char *name, const char *text, mode_t mode)
{
	auto_free char *path = at(name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void folder(const char *name)
{
	auto_free char *path = at(name);
	assert_int_equal(mkdir(path, 0755), 0);
}

/* place/t: a tree that looks like a root file system. */
static void small_tree(void)
{
	folder("t");
	folder("t/usr");
	folder("t/usr/bin");
	put("t/usr/bin/tool", "#!/bin/sh\n", 0755);
	auto_free char *link = at("t/bin");
	assert_int_equal(symlink("usr/bin", link), 0);
}

static char *packed(const char *flag, const char *name)
{
	auto_free char *tree = at("t");
	char *file = at(name);
	TOOL("tar", flag, "-cf", file, "-C", tree, ".");
	return file;
}

static size_t left_in_store(void)
{
	auto_free char *path = at("images");
	DIR *d = opendir(path);
	size_t n = 0;
	for (const struct dirent *e; d && (e = readdir(d));)
		n += strncmp(e->d_name, "tmp-", 4) == 0 || strncmp(e->d_name, "sha256-", 7) == 0;
	if (d)
		closedir(d);
	return n;
}

/* --- references --- */

static void test_normalise(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{ "debian", "debian" },
		{ "debian:latest", "debian" },
		{ "docker.io/library/debian:12.9", "debian:12.9" },
		{ "index.docker.io/library/python:latest", "python" },
		{ "library/node:20", "node:20" },
		{ "docker.io/me/tool:1", "me/tool:1" },
		{ "debian:12@sha256:00", "debian:12" },
		{ "quay.example/x/y:latest", "quay.example/x/y" },
		{ ":latest", ":latest" },
		{ "", "" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_free char *got = image_ref_normalise(cases[i][0]);
		assert_string_equal(got, cases[i][1]);
	}
}

static void test_names(void **state)
{
	(void)state;
	static const char *const good[] = { "default", "python:3.12", "a/b-c_d:1.0", "x@y", "7" };
	static const char *const bad[] = { "", ".", "/etc", "../x", "a..b", "a//b", "a b", "a\nb", "sha256:00", "-x", "a*", "\xc3\xa4" };
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_true(image_name_valid(good[i]));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(image_name_valid(bad[i]));
	assert_false(image_name_valid(NULL));
	char longest[IMAGE_REF_MAX + 2];
	memset(longest, 'a', sizeof longest - 1);
	longest[IMAGE_REF_MAX + 1] = 0;
	assert_false(image_name_valid(longest));
	longest[IMAGE_REF_MAX] = 0;
	assert_true(image_name_valid(longest));
	assert_true(image_pattern_valid("*"));
	assert_true(image_pattern_valid("python:*"));
	assert_true(image_pattern_valid("python"));
	assert_false(image_pattern_valid("py*thon"));
	assert_false(image_pattern_valid("**"));
	assert_false(image_pattern_valid(""));
	assert_true(image_digest_valid("sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"));
	assert_false(image_digest_valid("sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"));
	assert_false(image_digest_valid("sha256:"));
}

static void test_match(void **state)
{
	(void)state;
	assert_int_equal(image_pattern_match("python:*", "python:3.12"), 7);
	assert_int_equal(image_pattern_match("python:3*", "python:3.12"), 8);
	assert_int_equal(image_pattern_match("python:*", "python"), -1);
	assert_int_equal(image_pattern_match("*", "x"), 0);
	assert_int_equal(image_pattern_match("x", "x"), 1);
	assert_int_equal(image_pattern_match("x", "xy"), -1);
}

/* --- the store --- */

static void assert_error(int r, enum err_kind kind, const struct err *e, const char *part)
{
	assert_true(r < 0);
	if (!strstr(e->message, part))
		fail_msg("message '%s' lacks '%s'", e->message, part);
	assert_int_equal(e->kind, kind);
}

static void add_small(const char *name, char digest[static 72])
{
	auto_free char *file = packed("--owner=0", "t.tar");
	struct err e = { 0 };
	if (image_add(store, name, file, NULL, digest, &e) < 0)
		fail_msg("%s", e.message);
}

static void test_empty_store(void **state)
{
	(void)state;
	struct image i;
	struct err e;
	assert_error(image_resolve(store, "default", &i, &e), ERR_NOT_FOUND, &e, "caisson image build");
	assert_error(image_resolve(store, "../x", &i, &e), ERR_INVALID, &e, "not an image reference");
	assert_error(image_remove(store, "default", &e), ERR_NOT_FOUND, &e, "default");
}

static void count_image(void *ctx, const struct image *i)
{
	assert_true(image_digest_valid(i->digest));
	++*(size_t *)ctx;
}

static void test_add_and_resolve(void **state)
{
	(void)state;
	small_tree();
	char digest[72], again[72];
	struct err e = { 0 };
	struct image i;
	add_small("mine:1", digest);
	assert_int_equal(image_tag(store, "mine:1", "other", &e), 0);
	assert_int_equal(image_map(store, "python:*", "mine:1", &e), 0);
	assert_int_equal(image_map(store, "python:3.1*", "other", &e), 0);
	static const char *const refs[] = { "mine:1", "docker.io/library/mine:1", "other", "other:latest", "python:3.12", "python", "docker.io/library/python" };
	for (size_t n = 0; n < ARRAY_LEN(refs); n++) {
		assert_int_equal(image_resolve(store, refs[n], &i, &e), 0);
		assert_string_equal(i.digest, digest);
		assert_int_equal(i.stand_in, strstr(refs[n], "python") != NULL);
		assert_string_equal(i.names[0], "mine:1");
		assert_string_equal(i.names[1], "other");
		assert_null(i.names[2]);
		auto_free char *tool_path = xasprintf("%s/usr/bin/tool", i.root);
		assert_int_equal(access(tool_path, X_OK), 0);
		image_done(&i);
	}
	assert_int_equal(image_resolve(store, digest, &i, &e), 0);
	image_done(&i);
	assert_error(image_resolve(store, "ruby:3", &i, &e), ERR_NOT_FOUND, &e, "mine:1, other");
	/* The same files packed anew are the same image. */
	add_small("second", again);
	assert_string_equal(again, digest);
	size_t n = 0;
	assert_int_equal(image_each(store, count_image, &n, &e), 0);
	assert_int_equal(n, 1);
	assert_int_equal(left_in_store(), 1);
}

static void test_remove(void **state)
{
	(void)state;
	small_tree();
	char digest[72];
	struct err e = { 0 };
	struct image i;
	add_small("a", digest);
	assert_int_equal(image_tag(store, "a", "b", &e), 0);
	assert_int_equal(image_remove(store, "a", &e), 0);
	assert_int_equal(image_resolve(store, "b", &i, &e), 0);
	auto_free char *dir = xstrndup(i.root, strlen(i.root) - strlen("/rootfs"));
	image_done(&i);

	int user = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(user, LOCK_SH), 0);
	assert_error(image_remove(store, "b", &e), ERR_CONFLICT, &e, "in use");
	assert_int_equal(image_resolve(store, "b", &i, &e), 0); /* name and files are still there */
	image_done(&i);
	assert_error(image_remove(store, digest, &e), ERR_CONFLICT, &e, "in use");
	close(user);

	assert_int_equal(image_remove(store, digest, &e), 0);
	assert_error(image_resolve(store, "b", &i, &e), ERR_NOT_FOUND, &e, "none on this host");
	assert_int_equal(left_in_store(), 0);
}

static void test_damaged_files(void **state)
{
	(void)state;
	small_tree();
	char digest[72];
	struct err e = { 0 };
	struct image i;
	add_small("a", digest);
	static const char *const broken[] = { "", "{", "[]x", "{\"refs\":{\"a\":5}}", "{\"refs\":{\"a\":\"sha256:../../etc\"}}", "{\"refs\":[]}" };
	for (size_t n = 0; n < ARRAY_LEN(broken); n++) {
		put("images/refs.json", broken[n], 0644);
		assert_error(image_resolve(store, "a", &i, &e), ERR_INTERNAL, &e, "refs.json is damaged");
	}
	auto_free char *text = xasprintf("{\"refs\":{\"a\":\"%s\"}}", digest);
	put("images/refs.json", text, 0644);
	assert_int_equal(image_resolve(store, "a", &i, &e), 0);
	auto_free char *json = xasprintf("images/%.6s-%s/image.json", digest, digest + 7);
	image_done(&i);
	put(json, "{\"digest\":\"sha256:0\"}", 0644);
	assert_error(image_resolve(store, "a", &i, &e), ERR_INTERNAL, &e, "damaged");
}

static void test_bad_arguments(void **state)
{
	(void)state;
	small_tree();
	char digest[72];
	struct err e = { 0 };
	auto_free char *file = packed("--owner=0", "t.tar"), *tree = at("t"), *none = at("none");
	assert_error(image_add(store, "../x", file, NULL, digest, &e), ERR_INVALID, &e, "not a name");
	assert_error(image_add(store, "a", none, NULL, digest, &e), ERR_NOT_FOUND, &e, "can't open");
	assert_error(image_add(store, "a", tree, NULL, digest, &e), ERR_INVALID, &e, "is not a file");
	assert_error(image_map(store, "a*b", "a", &e), ERR_INVALID, &e, "not a pattern");
	assert_error(image_map(store, "a*", "nobody", &e), ERR_NOT_FOUND, &e, "nobody");
	assert_error(image_map(store, "a*", NULL, &e), ERR_NOT_FOUND, &e, "no line");
	assert_error(image_add(store, "a", "oci:/tmp:a b", NULL, digest, &e), ERR_INVALID, &e, "DIR[:TAG]");
	assert_int_equal(left_in_store(), 0);
}

/* --- sealing --- */

static int seal(uint64_t bytes, uint64_t entries, struct tree_sealed *ret, struct err *e)
{
	auto_free char *path = at("t");
	auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return tree_seal(fd, "{}", &(struct tree_limits){ bytes, entries }, ret, e);
}

static void test_seal_takes_privileges(void **state)
{
	(void)state;
	small_tree();
	struct err e = { 0 };
	struct tree_sealed a = { 0 }, b = { 0 };
	auto_free char *tool_path = at("t/usr/bin/tool");
	assert_int_equal(chmod(tool_path, 06755), 0);
	assert_int_equal(setxattr(tool_path, "trusted.overlay.opaque", "y", 1, 0), 0);
	static const unsigned char caps[20] = { 1, 0, 0, 2, 0xff }; /* version 2, effective */
	assert_int_equal(setxattr(tool_path, "security.capability", caps, sizeof caps, 0), 0);
	assert_int_equal(seal(1 << 20, 100, &a, &e), 0);
	struct stat st;
	assert_int_equal(stat(tool_path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(listxattr(tool_path, NULL, 0), 0);
	assert_string_equal(a.privileged[0], "6755 /usr/bin/tool");
	assert_null(a.privileged[1]);
	assert_int_equal(a.entries, 4);
	assert_int_equal(a.bytes, 10);
	/* The digest tells apart what was privileged and what was not. */
	assert_int_equal(seal(1 << 20, 100, &b, &e), 0);
	assert_string_not_equal(a.digest, b.digest);
	assert_null(b.privileged);
	strings_free(a.privileged);
}

static void test_digest_covers(void **state)
{
	(void)state;
	small_tree();
	struct err e = { 0 };
	struct tree_sealed first = { 0 }, s = { 0 };
	auto_free char *tool_path = at("t/usr/bin/tool"), *link = at("t/bin");
	assert_int_equal(seal(1 << 20, 100, &first, &e), 0);
	TOOL("touch", "-d", "@1", tool_path);
	assert_int_equal(seal(1 << 20, 100, &s, &e), 0);
	assert_string_equal(s.digest, first.digest);
	put("t/usr/bin/tool", "#!/bin/sH\n", 0755);
	assert_int_equal(seal(1 << 20, 100, &s, &e), 0);
	assert_string_not_equal(s.digest, first.digest);
	put("t/usr/bin/tool", "#!/bin/sh\n", 0755);
	assert_int_equal(chown(tool_path, 0, 7), 0);
	assert_int_equal(seal(1 << 20, 100, &s, &e), 0);
	assert_string_not_equal(s.digest, first.digest);
	assert_int_equal(chown(tool_path, 0, 0), 0);
	assert_int_equal(seal(1 << 20, 100, &s, &e), 0);
	assert_string_equal(s.digest, first.digest);
	assert_int_equal(unlink(link), 0);
	assert_int_equal(symlink("usr/bim", link), 0);
	assert_int_equal(seal(1 << 20, 100, &s, &e), 0);
	assert_string_not_equal(s.digest, first.digest);
}

static void test_seal_refuses(void **state)
{
	(void)state;
	small_tree();
	struct err e = { 0 };
	struct tree_sealed s = { 0 };
	assert_error(seal(1 << 20, 3, &s, &e), ERR_LIMIT, &e, "more than 3 files");
	assert_error(seal(9, 100, &s, &e), ERR_LIMIT, &e, "larger than");
	auto_free char *dev = at("t/dev"), *null = at("t/dev/null"), *disk = at("t/usr/disk"), *tool_path = at("t/usr/bin/tool");
	assert_int_equal(mkdir(dev, 0755), 0);
	assert_int_equal(mknod(null, S_IFCHR | 0666, makedev(1, 3)), 0);
	assert_int_equal(seal(1 << 20, 100, &s, &e), 0);
	assert_int_equal(access(null, F_OK), -1);
	assert_int_equal(mknod(disk, S_IFBLK | 0666, makedev(7, 200)), 0);
	assert_error(seal(1 << 20, 100, &s, &e), ERR_INVALID, &e, "/usr/disk is a device");
	assert_int_equal(unlink(disk), 0);
	assert_int_equal(chown(tool_path, 65536, 0), 0);
	assert_error(seal(1 << 20, 100, &s, &e), ERR_INVALID, &e, "65536:0");
	assert_int_equal(chown(tool_path, 65535, 65535), 0);
	assert_int_equal(seal(1 << 20, 100, &s, &e), 0);
	/* A hole as large as it likes costs nothing to pack and for ever to read. */
	assert_int_equal(truncate(tool_path, 1LL << 42), 0);
	assert_error(seal(1 << 20, 100, &s, &e), ERR_LIMIT, &e, "larger than 1 MiB");
}

static void test_deep_tree(void **state)
{
	(void)state;
	small_tree();
	auto_free char *path = at("t");
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(mkdirat(fd, "d", 0755), 0);
		int sub = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = sub;
	}
	close(fd);
	struct err e = { 0 };
	struct tree_sealed s = { 0 };
	assert_error(seal(1 << 20, 100000, &s, &e), ERR_INVALID, &e, "deep");
	auto_fd int top = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(tree_remove(top, "t", &e), 0);
	assert_int_equal(faccessat(top, "t", F_OK, 0), -1);
	assert_int_equal(tree_remove(top, "t", &e), 0); /* not there: fine */
}

static void test_remove_follows_nothing(void **state)
{
	(void)state;
	folder("t");
	folder("outside");
	put("outside/keep", "x", 0644);
	auto_free char *outside = at("outside"), *link = at("t/link"), *keep = at("outside/keep");
	assert_int_equal(symlink(outside, link), 0);
	auto_fd int top = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
	assert_int_equal(access(keep, F_OK), 0);
}

int main(void)
{
	if (geteuid() != 0) {
		fprintf(stderr, "images are made by root: run the tests as root\n");
		return 1;
	}
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_normalise), cmocka_unit_test(test_names), cmocka_unit_test(test_match), T(test_empty_store),
		T(test_add_and_resolve), T(test_remove), T(test_damaged_files), T(test_bad_arguments), T(test_seal_takes_privileges),
		T(test_digest_covers), T(test_seal_refuses), T(test_deep_tree), T(test_remove_follows_nothing),
	};
	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
