#include "sys/loop.h"

#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

int loop_attach(int file_fd, unsigned *ret_number)
{
	auto_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return errno == ENOENT ? -ENODEV : -errno;

	for (int attempt = 0; attempt < 64; attempt++) { /* others on the host take devices too */
		char path[32];
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			return -errno;
		snprintf(path, sizeof path, "/dev/loop%d", number);
		auto_fd int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		struct loop_config config = { .fd = (unsigned)file_fd, .info.lo_flags = LO_FLAGS_AUTOCLEAR };
		if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
			*ret_number = (unsigned)number;
			return take_fd(&fd);
		}
		if (errno != EBUSY)
			return -errno;
	}
	return -EBUSY;
}

int loop_is_bound(unsigned number, int file_fd)
{
	char path[32];
	struct loop_info64 info;
	struct stat st;

	snprintf(path, sizeof path, "/dev/loop%u", number);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ENXIO ? 0 : -errno;
	if (ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
		return errno == ENXIO ? 0 : -errno;
	if (fstat(file_fd, &st) < 0)
		return -errno;
	return info.lo_inode == st.st_ino && info.lo_device == st.st_dev ? 1 : 0;
}

int loop_find(int file_fd, unsigned *ret_number)
{
	DIR *dir = opendir("/sys/block");
	int rc = dir ? -ENOENT : -errno;

	for (struct dirent *d; rc == -ENOENT && dir && (d = readdir(dir));) {
		uint64_t number;
		if (strncmp(d->d_name, "loop", 4) != 0 || parse_u64(str_of(d->d_name + 4), UINT32_MAX, &number) < 0)
			continue;
		if (loop_is_bound((unsigned)number, file_fd) == 1) {
			*ret_number = (unsigned)number;
			rc = 0;
		}
	}
	if (dir)
		(void)closedir(dir);
	return rc;
}
