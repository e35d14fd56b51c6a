#include "boundary/vm/vmdir.h"

#include "wire/cpio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, INITRD_MAX = 64 << 20 };

bool vmdir_id_valid(const char *id)
{
	return strlen(id) == 36 && strspn(id, "0123456789abcdef-") == 36;
}

int vmdir_make(const char *data, const char *id, struct err *e)
{
	auto_free char *path = xasprintf("%s/%s", data, id);

	if (mkdir(path, 0700) == 0)
		return 0;
	return errno == EEXIST ? err_set(e, ERR_CONFLICT, EEXIST, "sandbox %s is there already", id) :
				 err_sys(e, ERR_UNAVAILABLE, errno, "make a folder for the sandbox");
}

int vmdir_open(const char *data, const char *id)
{
	auto_free char *path = xasprintf("%s/%s", data, id);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int vmdir_remove(const char *data, const char *id, struct err *e)
{
	static const char *const names[] = { "vmm", "guest", "qmp", "limits", "held", "held.new", "ready", "ready.new", "ephemeral.new", "vmm.new", "limits.new", "ephemeral", "memory", "memory.sum", "memory.sum.new", "disk" };
	auto_fd int dir = vmdir_open(data, id);
	auto_free char *path = xasprintf("%s/%s", data, id);

	if (dir == -ENOENT)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(names) && dir >= 0; i++)
		(void)unlinkat(dir, names[i], 0);
	return dir < 0 || rmdir(path) < 0 ? err_sys(e, ERR_UNAVAILABLE, dir < 0 ? -dir : errno, "remove what is left of the sandbox") : 0;
}

void vmdir_forget_memory(const char *data, const char *id)
{
	auto_fd int dir = vmdir_open(data, id);

	if (dir >= 0)
		(void)unlinkat(dir, "memory", 0);
}

int vmdir_open_file(int dir, const char *name, int mode)
{
	auto_fd int fd = openat(dir, name, mode | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || fcntl(fd, F_SETFL, 0) < 0)
		return -EBADMSG;
	return take_fd(&fd);
}

int vmdir_new_disk(int dir)
{
	int fd = openat(dir, "disk", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

/* The filled parts of it, in the kernel. (copy_file_range takes none from a memory file to one on a disk.) */
static int copy_data(int from, int to, off_t size)
{
	off_t data, hole = 0;

	while ((data = lseek(from, hole, SEEK_DATA)) >= 0 && data < size) {
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		if (lseek(to, data, SEEK_SET) < 0)
			return -errno;
		for (off_t in = data; in < hole;) {
			ssize_t n = sendfile(to, from, &in, (size_t)(hole - in));
			if (n <= 0)
				return n < 0 ? -errno : -EIO;
		}
	}
	return data < 0 && errno != ENXIO ? -errno : 0;
}

int vmdir_fill_disk(int to, int from, struct err *e)
{
	struct stat st;
	int r = fstat(from, &st) < 0 ? -errno : 0;

	if (r == 0 && ioctl(to, FICLONE, from) == 0)
		return 0;
	if (r == 0)
		r = ftruncate(to, st.st_size) < 0 ? -errno : copy_data(from, to, st.st_size);
	return r < 0 ? err_sys(e, ERR_UNAVAILABLE, -r, "copy a disk") : 0;
}

/* By way of the folder's descriptor: a path may be longer than the address of a socket. */
static int address(int dir, const char *name, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", dir, name);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int vmdir_listen(int dir, const char *name)
{
	struct sockaddr_un a;
	auto_fd int fd = address(dir, name, &a);

	(void)unlinkat(dir, name, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 4) < 0)
		return -errno;
	return take_fd(&fd);
}

int vmdir_connect(int dir, const char *name)
{
	struct sockaddr_un a;
	auto_fd int fd = address(dir, name, &a);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		return -errno;
	return take_fd(&fd);
}

int vmdir_write(int dir, const char *name, const char *text)
{
	auto_free char *beside = xasprintf("%s.new", name);
	size_t n = strlen(text);
	auto_fd int fd = openat(dir, beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, n) != (ssize_t)n || renameat(dir, beside, dir, name) < 0) {
		int r = -errno;
		(void)unlinkat(dir, beside, 0);
		return r;
	}
	return 0;
}

char *vmdir_read(int dir, const char *name)
{
	char text[TEXT_MAX];
	auto_fd int fd = vmdir_open_file(dir, name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);

	return n < 0 ? NULL : xstrndup(text, (size_t)n);
}

char *vmdir_limits(int dir, uint64_t *ret_memory_mib, uint64_t *ret_cpu_millis, uint64_t *ret_disk_mib)
{
	auto_free char *text = vmdir_read(dir, "limits");
	unsigned long long memory, millis, disk;
	char image[80];

	if (!text || sscanf(text, "%llu %llu %llu %*u %79s", &memory, &millis, &disk, image) != 4)
		return NULL;
	if (ret_memory_mib)
		*ret_memory_mib = memory;
	if (ret_cpu_millis)
		*ret_cpu_millis = millis;
	if (ret_disk_mib)
		*ret_disk_mib = disk;
	return xstrdup(image);
}

static int append_file(struct buf *to, const char *path)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	char *at = st.st_size > INITRD_MAX ? NULL : buf_reserve(to, (size_t)st.st_size);
	if (!at)
		return -EFBIG;
	if (read(fd, at, (size_t)st.st_size) != st.st_size)
		return -EIO;
	buf_grew(to, (size_t)st.st_size);
	return 0;
}

int vmdir_initrd(const char *modules_path, struct str guest, struct err *e)
{
	const struct str none = { NULL, 0 };
	auto_buf struct buf b;

	buf_init(&b, INITRD_MAX);
	int r = append_file(&b, modules_path);
	if (r < 0)
		return err_sys(e, ERR_UNAVAILABLE, -r, "read %s", modules_path);
	(void)cpio_put(&b, "dev", S_IFDIR | 0755, 0, none);
	(void)cpio_put(&b, "dev/console", S_IFCHR | 0600, makedev(5, 1), none);
	(void)cpio_put(&b, "init", S_IFREG | 0755, 0, guest);
	(void)cpio_end(&b);
	auto_fd int fd = memfd_create("initrd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (b.overflow || fd < 0 || write(fd, b.data, b.len) != (ssize_t)b.len ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return err_sys(e, ERR_UNAVAILABLE, b.overflow ? EFBIG : errno, "make the first file system of virtual machines");
	return take_fd(&fd);
}
