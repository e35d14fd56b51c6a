/* Archives that mean harm, and the jail that the tools run in. */
#include "image/build.h"
#include "image/child.h"
#include "image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

static char place[64];
static struct image_store *store;

static char *at(const char *name)
{
	return xasprintf("%s/%s", place, name);
}

/* Runs a tool in `place`. */
static void tool(const char *const *argv)
{
	struct err e = { 0 };
	if (child_run(&(struct child_spec){ .argv = argv, .dir = place, .in = -1, .out = -1 }, NULL, NULL, "test", &e) < 0)
		fail_msg("%s", e.message);
}
#define TOOL(...) tool((const char *const[]){ __VA_ARGS__, NULL })

static int setup(void **state)
{
	(void)state;
	snprintf(place, sizeof place, "/tmp/caisson-test-import.XXXXXX");
	if (!mkdtemp(place))
		return -1;
	auto_free char *folder = at("images");
	store = image_store_new(folder);
	TOOL("mkdir", "-p", "t/usr/bin", "out");
	TOOL("touch", "t/usr/bin/tool", "t/x");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	image_store_free(store);
	return tree_remove(AT_FDCWD, place, NULL);
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

/* Adding source must fail with this, and leave nothing. */
static void assert_refused(const char *source, const struct image_options *o, enum err_kind kind, const char *part)
{
	char digest[72];
	struct err e = { 0 };
	auto_free char *path = strchr(source, ':') ? xstrdup(source) : at(source);
	assert_true(image_add(store, "bad", path, o, digest, &e) < 0);
	if (!strstr(e.message, part))
		fail_msg("message '%s' lacks '%s'", e.message, part);
	assert_int_equal(e.kind, kind);
	assert_int_equal(left_in_store(), 0);
}

static void added(const char *source, struct image *ret)
{
	char digest[72];
	struct err e = { 0 };
	auto_free char *path = strchr(source, ':') ? xstrdup(source) : at(source);
	if (image_add(store, "good", path, NULL, digest, &e) < 0 || image_resolve(store, "good", ret, &e) < 0)
		fail_msg("%s", e.message);
	assert_string_equal(ret->digest, digest);
}

static void test_names_that_climb(void **state)
{
	(void)state;
	auto_free char *rule = xasprintf("s,^x$,../../../../../../../..%s/climbed,", place), *climbed = at("climbed");
	TOOL("tar", "-P", "--transform", rule, "-cf", "a.tar", "-C", "t", "usr", "x");
	assert_refused("a.tar", NULL, ERR_INVALID, "contains '..'");
	assert_int_equal(access(climbed, F_OK), -1);
}

static void test_absolute_names(void **state)
{
	(void)state;
	auto_free char *rule = xasprintf("s,^x$,%s/climbed,", place), *climbed = at("climbed");
	TOOL("tar", "-P", "--transform", rule, "-cf", "a.tar", "-C", "t", "usr", "x");
	struct image i;
	added("a.tar", &i); /* lands inside, as tar always does it */
	auto_free char *inside = xasprintf("%s%s/climbed", i.root, place);
	assert_int_equal(access(inside, F_OK), 0);
	assert_int_equal(access(climbed, F_OK), -1);
	image_done(&i);
}

static void test_through_a_link(void **state)
{
	(void)state;
	auto_free char *link = at("t/l"), *climbed = at("out/x");
	auto_free char *target = at("out");
	assert_int_equal(symlink(target, link), 0);
	TOOL("tar", "-P", "--transform", "s,^x$,l/x,", "-cf", "a.tar", "-C", "t", "usr", "l", "x");
	assert_refused("a.tar", NULL, ERR_INVALID, "l/x");
	assert_int_equal(access(climbed, F_OK), -1);
}

static void test_devices(void **state)
{
	(void)state;
	auto_free char *null = at("t/dev/null"), *disk = at("t/usr/disk");
	TOOL("mkdir", "t/dev");
	assert_int_equal(mknod(null, S_IFCHR | 0666, makedev(1, 3)), 0);
	TOOL("tar", "-cf", "a.tar", "-C", "t", ".");
	struct image i;
	added("a.tar", &i); /* those of /dev are left out */
	auto_free char *inside = xasprintf("%s/dev/null", i.root);
	assert_int_equal(access(inside, F_OK), -1);
	image_done(&i);
	assert_int_equal(image_remove(store, "good", NULL), 0);
	assert_int_equal(mknod(disk, S_IFBLK | 0666, makedev(7, 200)), 0);
	TOOL("tar", "-cf", "b.tar", "-C", "t", ".");
	assert_refused("b.tar", NULL, ERR_INVALID, "usr/disk");
}

static void test_owners(void **state)
{
	(void)state;
	struct stat st;
	struct image i;
	TOOL("tar", "--owner=someone:1234", "--group=other:65535", "-cf", "a.tar", "-C", "t", ".");
	added("a.tar", &i);
	auto_free char *inside = xasprintf("%s/usr/bin/tool", i.root);
	assert_int_equal(stat(inside, &st), 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 65535);
	assert_int_equal(stat(i.root, &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_mode & 07777, 0700); /* nobody of the host with the number 1234 gets in */
	image_done(&i);
	assert_int_equal(image_remove(store, "good", NULL), 0);
	TOOL("tar", "--owner=someone:65536", "-cf", "b.tar", "-C", "t", ".");
	assert_refused("b.tar", NULL, ERR_INVALID, "65536");
}

static void test_bombs(void **state)
{
	(void)state;
	const struct image_options small = { .max_bytes = 1 << 20, .max_entries = 100 };
	TOOL("truncate", "-s", "64M", "t/usr/zeros");
	TOOL("tar", "-czf", "bytes.tar.gz", "-C", "t", ".");
	assert_refused("bytes.tar.gz", &small, ERR_LIMIT, "unfolds to more than");
	TOOL("tar", "-S", "-cf", "hole.tar", "-C", "t", ".");
	assert_refused("hole.tar", &small, ERR_LIMIT, "larger than 1 MiB");
	TOOL("rm", "t/usr/zeros");
	TOOL("sh", "-c", "for i in $(seq 200); do : >t/usr/f$i; done");
	TOOL("tar", "-cf", "files.tar", "-C", "t", ".");
	assert_refused("files.tar", &small, ERR_LIMIT, "more than 100 files");
	TOOL("sh", "-c", "rm t/usr/f*; d=t/usr; for i in $(seq 110); do d=$d/d; done; mkdir -p $d; : >$d/f");
	TOOL("sh", "-c", "find t/usr -type f -name f -printf '%P\\n' | tar -cf folders.tar -C t/usr --transform 's,^,usr/,' -T -");
	assert_refused("folders.tar", &small, ERR_LIMIT, "more than 100 files");
}

static void test_broken_archives(void **state)
{
	(void)state;
	TOOL("sh", "-c", "head -c 100000 /dev/urandom >t/usr/noise; : >empty.tar; head -c 5000 /dev/urandom >noise.tar");
	TOOL("sh", "-c", "tar -cf whole.tar -C t .; head -c 50000 whole.tar >cut.tar");
	assert_refused("empty.tar", NULL, ERR_INVALID, "tar archive");
	assert_refused("noise.tar", NULL, ERR_INVALID, "tar archive");
	assert_refused("cut.tar", NULL, ERR_INVALID, "EOF");
	static const char *const packers[][3] = { { "gzip", "-9" }, { "xz", "-0" }, { "zstd", "-q" }, { "bzip2", "-1" } };
	for (size_t n = 0; n < ARRAY_LEN(packers); n++) {
		auto_free char *pack = xasprintf("%s %s -c whole.tar >packed; head -c 30000 packed >packed-cut", packers[n][0], packers[n][1]);
		TOOL("sh", "-c", pack);
		assert_refused("packed-cut", NULL, ERR_INVALID, "can't be decompressed");
		struct image i;
		added("packed", &i);
		image_done(&i);
		assert_int_equal(image_remove(store, "good", NULL), 0);
	}
	TOOL("tar", "-cf", "bare.tar", "-C", "t", "x");
	assert_refused("bare.tar", NULL, ERR_INVALID, "no root file system");
}

static void test_oci(void **state)
{
	(void)state;
	TOOL("sh", "-c", "umoci init --layout oci && umoci new --image oci:one && umoci unpack --image oci:one bundle");
	TOOL("sh", "-c", "cp -a t/usr bundle/rootfs/ && : >bundle/rootfs/gone && umoci repack --refresh-bundle --image oci:one bundle");
	TOOL("sh", "-c", "rm bundle/rootfs/gone && umoci repack --image oci:one bundle");
	TOOL("umoci", "config", "--image", "oci:one", "--config.user", "7:8", "--config.workingdir", "/usr", "--config.env", "A=b=c");
	auto_free char *source = xasprintf("oci:%s/oci:one", place), *unknown = xasprintf("oci:%s/oci:two", place);
	struct image i;
	added(source, &i);
	assert_string_equal(i.user, "7:8");
	assert_string_equal(i.workdir, "/usr");
	assert_string_equal(pairs_get(&i.env, "A"), "b=c");
	auto_free char *tool_path = xasprintf("%s/usr/bin/tool", i.root), *gone = xasprintf("%s/gone", i.root);
	assert_int_equal(access(tool_path, F_OK), 0);
	assert_int_equal(access(gone, F_OK), -1); /* the second layer takes away what the first brought */
	image_done(&i);
	assert_int_equal(image_remove(store, "good", NULL), 0);
	assert_refused(unknown, NULL, ERR_INVALID, "two");
	assert_refused(source, &(struct image_options){ .max_bytes = 32ULL << 20, .max_entries = 2 }, ERR_LIMIT, "more than 2 files");
	TOOL("sh", "-c", "for b in oci/blobs/sha256/*; do printf x >>$b; done");
	assert_refused(source, NULL, ERR_INVALID, "can't read the image");
}

/* --- the jail --- */

static int in_jail(const char *script)
{
	auto_free char *out = at("out"), *in = at("t");
	const struct child_jail jail = { .out = out, .in = in };
	const char *const argv[] = { "sh", "-c", script, NULL };
	struct err e = { 0 };
	pid_t pid = child_start(&(struct child_spec){ .argv = argv, .jail = &jail, .in = -1, .out = -1, .file_max = 1 << 20 }, &e);
	if (pid < 0)
		fail_msg("%s", e.message);
	return child_wait(pid);
}

static void test_jail(void **state)
{
	(void)state;
	auto_free char *hidden = xasprintf("test ! -e %s", place), *pid = xasprintf("! kill -0 %d", (int)getpid());
	assert_int_equal(in_jail("exit 7"), 7);
	assert_int_equal(in_jail("kill -9 $$"), 128 + 9);
	assert_int_equal(in_jail("test \"$PWD\" = /out && : >made && test -e /in/x"), 0);
	assert_int_equal(in_jail(hidden), 0);
	assert_int_equal(in_jail("test ! -e /etc/passwd && test ! -e /root && test ! -e /var && test ! -e /sys"), 0);
	assert_int_equal(in_jail("! true >/in/x && ! true >/usr/made && ! true >/proc/sys/kernel/core_pattern"), 0);
	assert_int_equal(in_jail(pid), 0);
	assert_int_equal(in_jail("! mknod /out/null c 1 3 && ! mount -t tmpfs none /tmp && ! chroot /out true"), 0);
	assert_int_equal(in_jail("test \"$(grep -c . /proc/net/dev)\" = 3"), 0); /* two lines of heading, and lo */
	assert_int_equal(in_jail("chown 5:6 /out/made"), 0);
	assert_int_equal(in_jail("yes >/out/large"), 128 + 25); /* SIGXFSZ */
	auto_free char *made = at("out/made");
	struct stat st;
	assert_int_equal(stat(made, &st), 0);
	assert_int_equal(st.st_uid, 5);
}

static void test_missing_tool(void **state)
{
	(void)state;
	struct err e = { 0 };
	const char *const argv[] = { "no-such-tool", NULL };
	assert_int_equal(child_start(&(struct child_spec){ .argv = argv, .in = -1, .out = -1 }, &e), -ENOENT);
	assert_non_null(strstr(e.message, "no-such-tool is not installed"));
}

int main(void)
{
	if (geteuid() != 0) {
		fprintf(stderr, "images are made by root: run the tests as root\n");
		return 1;
	}
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_names_that_climb), T(test_absolute_names), T(test_through_a_link), T(test_devices), T(test_owners), T(test_bombs),
		T(test_broken_archives), T(test_oci), T(test_jail), T(test_missing_tool),
	};
	return cmocka_run_group_tests_name("import", tests, NULL, NULL);
}
