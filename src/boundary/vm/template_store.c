#include "base/buf.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/template_int.h"
#include "boundary/vm/vmm.h"
#include "sys/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const template_names[TEMPLATE_FILES] = { "ram", "state", "disk" };

/* --- what a template depends on --- */

static void hash(struct str s, char ret_hex[static TEMPLATE_KEY + 1])
{
	unsigned char sum[EVP_MAX_MD_SIZE];
	unsigned n;

	if (EVP_Digest(s.p ? s.p : "", s.n, sum, &n, EVP_sha256(), NULL) != 1)
		abort();
	hex_encode(sum, n, ret_hex);
}

/* The processor as the guest sees it: with KVM, and in part emulated too, it is the host's. */
static void add_processor(struct buf *b)
{
	char text[8192];
	auto_fd int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[MAX(n, (ssize_t)0)] = '\0';
	static const char *const keys[] = { "model name", "stepping", "microcode", "flags" };
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const char *at = strstr(text, keys[i]);
		if (at)
			(void)buf_add(b, at, strcspn(at, "\n"));
	}
}

static void add_file(struct buf *b, const char *path)
{
	struct stat st = { 0 };

	(void)stat(path, &st);
	(void)buf_addf(b, "\n%s %llu %llu %lld %lld.%09ld", path, (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
		       (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

static void add_initrd(struct buf *b, int fd)
{
	char block[65536], hex[TEMPLATE_KEY + 1];
	unsigned char sum[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	off_t at = 0;
	unsigned size;
	ssize_t n;

	if (!md || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
		abort();
	while ((n = pread(fd, block, sizeof block, at)) > 0) {
		(void)EVP_DigestUpdate(md, block, (size_t)n);
		at += n;
	}
	(void)EVP_DigestFinal_ex(md, sum, &size);
	EVP_MD_CTX_free(md);
	hex_encode(sum, size, hex);
	(void)buf_addf(b, "\n%s", hex);
}

char *template_fixed(const struct template_host *h)
{
	struct buf b;
	char boot[37] = "";

	buf_init(&b, 65536);
	(void)process_boot_id(boot);
	(void)buf_addf(&b, "3 %s ", boot); /* the first is the number of how templates are made */
	add_processor(&b);
	add_initrd(&b, h->initrd);
	return buf_take(&b);
}

char *template_host_sum(const struct template_host *h, const char *fixed)
{
	auto_buf struct buf b;
	char *sum = xmalloc(TEMPLATE_KEY + 1);

	buf_init(&b, 65536);
	(void)buf_addf(&b, "%s", fixed);
	add_file(&b, VMM_PROGRAM);
	add_file(&b, h->kernel);
	hash(buf_str(&b), sum);
	return sum;
}

struct vmm_plan template_plan(const struct template_host *h, const struct template_need *n)
{
	return (struct vmm_plan){ .begin = VMM_BOOT, .ram = VMM_RAM_SHARED, .kvm = h->kvm, .tap = h->tap, .tsc_khz = h->tsc_khz,
				  .cpu_millis = n->cpus * 1000ul, .memory_mib = n->memory_mib };
}

void template_key(const struct template_host *h, const char *fixed, const struct template_need *n, char ret_key[static TEMPLATE_KEY + 1])
{
	auto_free char *host = template_host_sum(h, fixed);
	/* the rate of the clock is measured at each start, and differs by little each time */
	struct vmm_plan plan = template_plan(h, n);
	plan.tsc_khz = 0;
	char **argv = vmm_argv(VMM_PROGRAM, &plan);
	auto_buf struct buf b;

	buf_init(&b, 65536);
	(void)buf_addf(&b, "%s\n%s\n%llu", host, n->image, (unsigned long long)n->disk_mib);
	for (size_t i = 0; argv[i]; i++)
		(void)buf_addf(&b, "\n%s", argv[i]);
	vmm_argv_free(argv);
	hash(buf_str(&b), ret_key);
}

/* --- on the disk --- */

int template_meta_write(int dir, const struct template_need *n, const char *host, const struct template_sums *s)
{
	json_t *j = json_pack("{s:s, s:i, s:I, s:I, s:s, s:[s,s,s]}", "image", n->image, "cpus", (int)n->cpus, "memory_mib", (json_int_t)n->memory_mib,
			      "disk_mib", (json_int_t)n->disk_mib, "host", host, "sums", s->v[0], s->v[1], s->v[2]);
	auto_free char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	return text ? vmdir_write(dir, "meta", text) : -ENOMEM;
}

int template_meta_read(int dir, struct template_need *ret_need, char **ret_host, struct template_sums *ret_sums)
{
	auto_free char *text = vmdir_read(dir, "meta");
	const char *image, *host, *sums[TRANSFER_FILES];
	int cpus, r = -EBADMSG;
	json_int_t memory, disk;

	if (!text)
		return -ENOENT;
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (j && json_unpack(j, "{s:s, s:i, s:I, s:I, s:s, s:[s,s,s]}", "image", &image, "cpus", &cpus, "memory_mib", &memory, "disk_mib", &disk, "host",
			     &host, "sums", &sums[0], &sums[1], &sums[2]) == 0 &&
	    cpus > 0 && memory > 0 && disk > 0) {
		for (size_t i = 0; i < TRANSFER_FILES; i++)
			snprintf(ret_sums->v[i], sizeof ret_sums->v[i], "%s", sums[i]);
		*ret_need = (struct template_need){ .image = xstrdup(image), .cpus = (unsigned)cpus, .memory_mib = (uint64_t)memory, .disk_mib = (uint64_t)disk };
		*ret_host = xstrdup(host);
		r = 0;
	}
	json_decref(j);
	return r;
}

void template_folder_remove(const char *path)
{
	static const char *const names[] = { "meta", "ram", "state", "disk", "guest", "qmp", "vmm", "id", "meta.new", "vmm.new", "id.new" };
	auto_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(names); i++)
		(void)unlinkat(dir, names[i], 0);
	if (dir >= 0)
		(void)rmdir(path);
}

static bool is_current(int dir, const char *host, struct template_need *ret_need)
{
	auto_free char *of = NULL;
	struct template_sums sums;

	return template_meta_read(dir, ret_need, &of, &sums) == 0 && streq(of, host);
}

void template_sweep(const struct template_host *h, const char *folder, const char *host, void (*outdated)(void *ctx, const struct template_need *n), void *ctx)
{
	DIR *d = opendir(folder);

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		if (streq(entry->d_name, ".") || streq(entry->d_name, "..") || streq(entry->d_name, "no-kvm"))
			continue;
		auto_free char *path = xasprintf("%s/%s", folder, entry->d_name);
		auto_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		struct template_need need = { 0 };
		if (dir >= 0 && is_current(dir, host, &need)) {
			free((void *)(uintptr_t)need.image);
			continue;
		}
		if (dir >= 0)
			vmm_end_unfinished(h->qemu->launcher, dir);
		template_folder_remove(path);
		if (need.image)
			outdated(ctx, &need);
		free((void *)(uintptr_t)need.image);
	}
	if (d)
		closedir(d);
}

/* What KVM depends on: less than a template does, for another guest program comes up no better. */
static void kvm_sum(const struct template_host *h, char ret_hex[static TEMPLATE_KEY + 1])
{
	auto_buf struct buf b;
	char boot[37] = "";

	buf_init(&b, 65536);
	(void)process_boot_id(boot);
	(void)buf_addf(&b, "%s", boot);
	add_file(&b, VMM_PROGRAM);
	add_file(&b, h->kernel);
	hash(buf_str(&b), ret_hex);
}

bool template_no_kvm(const struct template_host *h)
{
	char sum[TEMPLATE_KEY + 1];
	auto_fd int dir = vmdir_open(h->folder, "");
	auto_free char *of = dir < 0 ? NULL : vmdir_read(dir, "no-kvm");

	kvm_sum(h, sum);
	return streq(of, sum);
}

void template_no_kvm_write(const struct template_host *h)
{
	char sum[TEMPLATE_KEY + 1];
	auto_fd int dir = vmdir_open(h->folder, "");

	kvm_sum(h, sum);
	if (dir >= 0)
		(void)vmdir_write(dir, "no-kvm", sum);
}

void templates_remove(const char *folder)
{
	auto_fd int at = vmdir_open(folder, "");
	DIR *d = opendir(folder);

	for (const struct dirent *entry; d && (entry = readdir(d));) {
		auto_free char *path = xasprintf("%s/%s", folder, entry->d_name);
		if (!streq(entry->d_name, ".") && !streq(entry->d_name, ".."))
			template_folder_remove(path);
	}
	if (d)
		closedir(d);
	if (at >= 0)
		(void)unlinkat(at, "no-kvm", 0);
	(void)rmdir(folder);
}

/* --- held --- */

int template_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ? -errno : 0;
}

struct template_files template_no_files(void)
{
	return (struct template_files){ { -EBADF, -EBADF, -EBADF } };
}

int template_files_make(struct template_files *f, const uint64_t sizes[static TEMPLATE_FILES])
{
	*f = template_no_files();
	for (size_t i = 0; i < TEMPLATE_FILES; i++) {
		f->fds[i] = memfd_create(template_names[i], MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (f->fds[i] < 0 || ftruncate(f->fds[i], (off_t)sizes[i]) < 0) {
			int r = -errno;
			template_files_close(f);
			return r;
		}
	}
	return 0;
}

int template_files_seal(const struct template_files *f)
{
	int r = 0;

	for (size_t i = 0; i < TEMPLATE_FILES && r == 0; i++)
		r = template_seal(f->fds[i]);
	return r;
}

void template_files_close(struct template_files *f)
{
	for (size_t i = 0; i < TEMPLATE_FILES; i++)
		f->fds[i] = close_fd(f->fds[i]);
}
