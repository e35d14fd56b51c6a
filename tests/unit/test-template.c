/* What is stored of templates: a file's copy and its sum, what was written down of it, what a key depends on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "boundary/vm/template_int.h"
#include "boundary/vm/vmdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 3 * 1024 * 1024 + 100 };

struct result {
	bool done;
	int r;
	char sums[TRANSFER_FILES][TRANSFER_SUM + 1];
};

static void on_transferred(void *ctx, int r, const struct transfer_file files[TRANSFER_FILES])
{
	struct result *to = ctx;

	to->done = true;
	to->r = r;
	for (size_t i = 0; i < TRANSFER_FILES; i++)
		memcpy(to->sums[i], files[i].sum, sizeof to->sums[i]);
}

static struct result transfer(const int from[TRANSFER_FILES], const int to[TRANSFER_FILES])
{
	struct transfer_file files[TRANSFER_FILES];
	struct result r = { 0 };
	uv_loop_t loop;

	for (size_t i = 0; i < TRANSFER_FILES; i++)
		files[i] = (struct transfer_file){ .from = from[i], .to = to[i] };
	uv_loop_init(&loop);
	(void)transfer_new(&loop, files, on_transferred, &r);
	while (!r.done)
		uv_run(&loop, UV_RUN_ONCE);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	return r;
}

static int file_of(size_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static void copies_what_is_there(void **state)
{
	(void)state;
	int from[] = { file_of(SIZE), file_of(0), file_of(4096) }, to[] = { file_of(0), file_of(0), -EBADF };
	static const off_t places[] = { 0, 5000, 4096 * 70 + 17, 2 * 1024 * 1024, SIZE - 3 };
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		assert_int_equal(pwrite(from[0], "xyz", 3, places[i]), 3);
	struct result one = transfer(from, to);
	assert_int_equal(one.r, 0);
	assert_int_equal(fstat(to[0], &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_true(st.st_blocks < 100); /* what is zero is not written */
	char *a = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, from[0], 0), *b = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, to[0], 0);
	assert_memory_equal(a, b, SIZE);
	munmap(a, SIZE);
	munmap(b, SIZE);
	/* the sum is of the bytes and their places, not of where the file has holes */
	char zeros[4096] = { 0 };
	assert_int_equal(pwrite(to[0], zeros, sizeof zeros, 1024 * 1024), sizeof zeros);
	int again[] = { to[0], from[1], from[2] }, nowhere[] = { -EBADF, -EBADF, -EBADF };
	struct result two = transfer(again, nowhere);
	assert_string_equal(one.sums[0], two.sums[0]);
	assert_int_equal(pwrite(to[0], "q", 1, 1024 * 1024), 1);
	assert_string_not_equal(transfer(again, nowhere).sums[0], one.sums[0]);
	assert_int_equal(pwrite(to[0], zeros, 1, 1024 * 1024), 1);
	assert_int_equal(pwrite(to[0], "xyz", 3, 5001), 3); /* moved by one */
	assert_string_not_equal(transfer(again, nowhere).sums[0], one.sums[0]);
	for (size_t i = 0; i < TRANSFER_FILES; i++) {
		close(from[i]);
		close_fd(to[i]);
	}
}

static void what_was_written_down_is_read(void **state)
{
	(void)state;
	char path[] = "/tmp/caisson-template-XXXXXX";
	struct template_need need = { .image = "sha256:0123", .cpus = 2, .memory_mib = 512, .disk_mib = 1024 }, got = { 0 };
	struct template_sums sums, read;
	char *host = NULL;

	assert_non_null(mkdtemp(path));
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < TRANSFER_FILES; i++)
		snprintf(sums.v[i], sizeof sums.v[i], "%064zu", i);
	assert_int_equal(template_meta_read(dir, &got, &host, &read), -ENOENT);
	assert_int_equal(template_meta_write(dir, &need, "host", &sums), 0);
	assert_int_equal(template_meta_read(dir, &got, &host, &read), 0);
	assert_string_equal(got.image, need.image);
	assert_int_equal(got.cpus, 2);
	assert_int_equal(got.memory_mib, 512);
	assert_int_equal(got.disk_mib, 1024);
	assert_string_equal(host, "host");
	assert_memory_equal(&read, &sums, sizeof sums);
	free((void *)(uintptr_t)got.image);
	free(host);
	static const char *const damaged[] = { "", "{", "[]", "{}", "{\"image\":\"x\"}",
					       "{\"image\":\"x\",\"cpus\":0,\"memory_mib\":1,\"disk_mib\":1,\"host\":\"h\",\"sums\":[\"\",\"\",\"\"]}",
					       "{\"image\":\"x\",\"cpus\":1,\"memory_mib\":1,\"disk_mib\":1,\"host\":\"h\",\"sums\":[\"\",\"\"]}" };
	for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
		assert_int_equal(vmdir_write(dir, "meta", damaged[i]), 0);
		assert_int_equal(template_meta_read(dir, &got, &host, &read), -EBADMSG);
	}
	close(dir);
	template_folder_remove(path);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_key_is_of_all_that_matters(void **state)
{
	(void)state;
	const struct template_host h = { .kernel = "/dev/null" };
	const struct template_need need = { .image = "sha256:0123", .cpus = 1, .memory_mib = 256, .disk_mib = 512 };
	char first[TEMPLATE_KEY + 1], key[TEMPLATE_KEY + 1];

	template_key(&h, "fixed", &need, first);
	template_key(&h, "fixed", &need, key);
	assert_string_equal(first, key);
	struct template_need others[] = { need, need, need, need };
	others[0].image = "sha256:0124";
	others[1].cpus = 2;
	others[2].memory_mib = 257;
	others[3].disk_mib = 513;
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		template_key(&h, "fixed", &others[i], key);
		assert_string_not_equal(first, key);
	}
	template_key(&h, "another boot", &need, key);
	assert_string_not_equal(first, key);
	template_key(&(struct template_host){ .kernel = "/dev/null", .kvm = true }, "fixed", &need, key);
	assert_string_not_equal(first, key);
	template_key(&(struct template_host){ .kernel = "/dev/zero" }, "fixed", &need, key);
	assert_string_not_equal(first, key);
}

static void nobody_writes_to_what_is_sealed(void **state)
{
	(void)state;
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, 8192), 0);
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_int_equal(template_seal(fd), -EBUSY); /* its maker has it mapped still */
	munmap(p, 8192);
	assert_int_equal(template_seal(fd), 0);
	assert_true(pwrite(fd, "x", 1, 0) < 0 && ftruncate(fd, 0) < 0);
	assert_true(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	assert_true(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_what_is_there),
		cmocka_unit_test(what_was_written_down_is_read),
		cmocka_unit_test(a_key_is_of_all_that_matters),
		cmocka_unit_test(nobody_writes_to_what_is_sealed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
