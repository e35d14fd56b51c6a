#include "guest/vm.h"

#include "guest/vmnet.h"
#include "guest/volumes.h"
#include "wire/edge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

/* linux/random.h: the kernel's headers are not in reach of musl's compiler */
#define RNDADDENTROPY _IOW('R', 0x03, int[2])
#define RNDRESEEDCRNG _IO('R', 0x07)
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

enum {
	PORT_FD = 3,
	PATIENCE_MS = 20000,           /* for devices; emulated and on a busy host they take their time */
	KEPT_BACK = 32 * 1024 * 1024,  /* of the machine's memory for the kernel and us: what runs has the rest */
	ROOT_MODE = 0755,
	LATE_NS = 1000000000,
	NAMES_TEXT = 512,
	UUID_BYTES = 16,
	FILES_MAX = 65536, /* descriptors of one process, as behind the other boundary */
};

bool vm_is_init(const char *arg0)
{
	return getpid() == 1 && arg0 && strcmp(arg0, "/init") == 0;
}

/* --- small things --- */

static int make_mount(const char *type, const char *at, unsigned long flags, const char *data)
{
	if (mkdir(at, ROOT_MODE) < 0 && errno != EEXIST)
		return -errno;
	return mount(type, at, type, flags, data) < 0 ? -errno : 0;
}

static int write_text(const char *path, const char *text, int flags)
{
	auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);
	size_t n = strlen(text);

	if (fd < 0)
		return -errno;
	ssize_t w = write(fd, text, n);
	return w == (ssize_t)n ? 0 : w < 0 ? -errno : -EIO;
}

/* The first line of a small file, or "". */
static void read_line(const char *path, char *to, size_t size)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, to, size - 1);

	to[n < 0 ? 0 : n] = '\0';
	to[strcspn(to, "\n")] = '\0';
}

/* --- boot --- */

static int mount_kernel(void)
{
	int r = make_mount("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);

	if (r == 0)
		r = make_mount("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	return r == 0 ? make_mount("devtmpfs", "/dev", MS_NOSUID, "mode=0755") : r;
}

static int load_module(const char *path)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
		return -errno;
	(void)unlink(path); /* its memory is of use elsewhere */
	return 0;
}

static int load_modules(void)
{
	struct dirent **found = NULL;
	int n = scandir("/modules", &found, NULL, alphasort), r = n < 0 ? -errno : 0;
	char path[300];

	for (int i = 0; i < n; i++) {
		if (r == 0 && found[i]->d_name[0] != '.') {
			snprintf(path, sizeof path, "/modules/%s", found[i]->d_name);
			r = load_module(path);
		}
		free(found[i]);
	}
	free(found);
	return r;
}

/* Looks in /sys/class/CLASS for the device whose file ATTRIBUTE says `value`, and makes its path in /dev. */
static bool find_device(const char *class, const char *attribute, const char *value, char *ret, size_t size)
{
	char path[400], text[64];
	bool found = false;

	snprintf(path, sizeof path, "/sys/class/%s", class);
	DIR *d = opendir(path);
	for (const struct dirent *e; d && !found && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/sys/class/%s/%s/%s", class, e->d_name, attribute);
		read_line(path, text, sizeof text);
		found = strcmp(text, value) == 0;
		if (found)
			snprintf(ret, size, "/dev/%.60s", e->d_name);
	}
	if (d)
		closedir(d);
	return found;
}

static int await_device(const char *class, const char *attribute, const char *value, char *ret, size_t size)
{
	struct stat st;

	for (uint64_t end = now_ms() + PATIENCE_MS; now_ms() < end; usleep(1000))
		if (find_device(class, attribute, value, ret, size) && stat(ret, &st) == 0)
			return 0;
	return -ENODEV;
}

static int mount_image(void)
{
	char disk[80];
	int r = await_device("block", "serial", "image", disk, sizeof disk);

	if (r == 0 && mkdir("/image", ROOT_MODE) < 0)
		r = -errno;
	return r == 0 && mount(disk, "/image", "erofs", MS_RDONLY, NULL) < 0 ? -errno : r;
}

/* Who has a port open has it alone: no tenant gets at one that is never closed. */
static int hold_port(const char *name, int *ret_fd)
{
	char port[80];
	int r = await_device("virtio-ports", "name", name, port, sizeof port);
	int fd = r < 0 ? r : open(port, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return r < 0 ? r : -errno;
	*ret_fd = fd;
	return 0;
}

static int volumes_port = -EBADF;

int vm_volumes_port(void)
{
	int fd = fcntl(volumes_port, F_DUPFD_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

static int open_ports(void)
{
	int port;

	for (int fd = 0; fd < PORT_FD; fd++) /* the kernel gives no console: nothing of ours may get such a number */
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			return -EBADF;
	int r = hold_port("guest", &port);
	if (r == 0 && port != PORT_FD) {
		r = dup2(port, PORT_FD) < 0 ? -errno : 0;
		(void)close(port);
	}
	return r < 0 ? r : hold_port("volumes", &volumes_port);
}

int vm_boot(const char **ret_what)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} steps[] = { { "proc, sys, dev", mount_kernel }, { "modules", load_modules }, { "image", mount_image }, { "ports", open_ports } };
	const struct rlimit files = { FILES_MAX, FILES_MAX };
	int r = 0;

	(void)setrlimit(RLIMIT_NOFILE, &files); /* the kernel gives its first program few */
	(void)reboot(RB_DISABLE_CAD);
	for (size_t i = 0; i < ARRAY_LEN(steps) && r == 0; i++) {
		*ret_what = steps[i].name;
		r = steps[i].run();
	}
	return r;
}

/* --- set-up --- */

/* Randomness first: whatever is begun later draws from it. Mixing it in would not be enough without the second call, since clones share
 * the state that answers until the kernel's next reseed. */
static int reseed(struct str seed)
{
	struct {
		int bits, size;
		char bytes[GUEST_SEED_MAX];
	} pool = { .bits = (int)seed.n * 8, .size = (int)seed.n };
	auto_fd int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	memcpy(pool.bytes, seed.p, seed.n);
	int r = ioctl(fd, RNDADDENTROPY, &pool) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0 ? -errno : 0;
	explicit_bzero(&pool, sizeof pool);
	return r;
}

/* exactly: of a machine that has just become another one, whose clock means nothing. Else a clock that is ahead by less than a second is
 * right: we have been told late. */
static int set_clock(uint64_t ns, bool exactly)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) }, now;

	if (!exactly && clock_gettime(CLOCK_REALTIME, &now) == 0) {
		int64_t ahead = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)ns;
		if (ahead >= 0 && ahead < LATE_NS)
			return 0;
	}
	return clock_settime(CLOCK_REALTIME, &t) < 0 ? -errno : 0;
}

/* The disk's tree above the image's, as the new root. What is mounted in it later is mounted after the chroot, so that a link that a
 * tenant has left on the disk leads nowhere else. */
static int enter_root(bool *ret_fresh)
{
	char disk[80];
	int r = await_device("block", "serial", "disk", disk, sizeof disk);

	if (r < 0)
		return r;
	/* lazytime: a file that is written over in place costs no journal, which is a third of what names cost a copy */
	if (mkdir("/disk", ROOT_MODE) < 0 || mount(disk, "/disk", "ext4", MS_NOATIME | MS_LAZYTIME, "noinit_itable") < 0)
		return -errno;
	*ret_fresh = mkdir("/disk/upper", ROOT_MODE) == 0;
	if ((!*ret_fresh && errno != EEXIST) || (mkdir("/disk/work", 0700) < 0 && errno != EEXIST) ||
	    mkdir("/new", ROOT_MODE) < 0)
		return -errno;
	if (mount("overlay", "/new", "overlay", MS_NOATIME, "lowerdir=/image,upperdir=/disk/upper,workdir=/disk/work") < 0)
		return -errno;
	if (chdir("/new") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return -errno;
	return 0;
}

static int furnish_root(void)
{
	/* what udev would do */
	static const char *const links[][2] = {
		{ "/proc/self/fd", "/dev/fd" },       { "/proc/self/fd/0", "/dev/stdin" }, { "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};
	int r = mount_kernel();

	(void)unlink("/dev/fuse"); /* volumes.c makes one for itself */
	if (r == 0)
		r = make_mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5");
	if (r == 0)
		r = make_mount("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
	for (size_t i = 0; i < ARRAY_LEN(links) && r == 0; i++)
		if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
			r = -errno;
	return r;
}

/* The kernel makes its boot's id when it is first asked for it and then keeps it, also in the children of a fork. So a file of ours lies over it, that is
 * in memory only, has no other name, and which we write by a descriptor that no tenant can lead elsewhere. */
static int cover_boot_id(struct guest *g)
{
	static const char name[] = "/dev/.boot-id";
	auto_fd int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	int r = fd < 0 || mount(name, BOOT_ID, NULL, MS_BIND, NULL) < 0 ? -errno : 0;

	(void)unlink(name);
	if (r == 0)
		g->boot_id = take_fd(&fd);
	return r;
}

/* A random uuid: of the last bytes of the seed, which a copy has anyway, else of the kernel's. */
static int renew_boot_id(const struct guest *g, struct str seed)
{
	unsigned char b[UUID_BYTES];
	char text[40];

	if (seed.p)
		memcpy(b, seed.p + seed.n - sizeof b, sizeof b);
	else if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
		return -EIO;
	b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* version 4 of RFC 9562 */
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	int n = snprintf(text, sizeof text, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", b[0], b[1], b[2], b[3], b[4], b[5], b[6],
			 b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return pwrite(g->boot_id, text, (size_t)n, 0) == n ? 0 : -EIO;
}

static int loopback_up(void)
{
	struct ifreq rq = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	auto_fd int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0 || ioctl(s, SIOCSIFFLAGS, &rq) < 0)
		return -errno;
	(void)write_text("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0", 0); /* as behind every boundary */
	(void)write_text("/proc/sys/net/ipv4/ping_group_range", "0 2147483647", 0);
	return 0;
}

/* There is no swap. Without a working set that is kept, a machine that runs out of memory reads its programs again and again, for minutes, before
 * one is killed. */
static void keep_working_set(void)
{
	(void)write_text("/sys/kernel/mm/lru_gen/enabled", "y", 0);
	(void)write_text("/sys/kernel/mm/lru_gen/min_ttl_ms", "1000", 0);
}

/* One group for everything that runs, so that neither memory nor processes can run out for us; in it the guest makes one per run. */
static int make_groups(struct guest *g)
{
	struct sysinfo info;
	char text[32];
	int r = mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? -errno : 0;

	if (r == 0)
		r = write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids", 0);
	if (r == 0 && mkdir(VM_GROUP, ROOT_MODE) < 0)
		r = -errno;
	if (r == 0 && sysinfo(&info) == 0 && info.totalram * info.mem_unit > 2ul * KEPT_BACK) {
		snprintf(text, sizeof text, "%llu", (unsigned long long)info.totalram * info.mem_unit - KEPT_BACK);
		r = write_text(VM_GROUP "/memory.max", text, 0);
	}
	int dir = r < 0 ? -EBADF : open(VM_GROUP, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && dir < 0)
		r = -errno;
	if (r == 0)
		groups_init(&g->groups, dir);
	return r;
}

static int limit_processes(struct guest *g, uint64_t pids)
{
	char text[32];

	if (pids == g->pids) /* a copy's are often its parent's */
		return 0;
	auto_fd int fd = openat(g->groups.dir, "pids.max", O_WRONLY | O_CLOEXEC); /* not by a path, which a tenant may lead elsewhere */

	snprintf(text, sizeof text, "%llu", (unsigned long long)pids);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	g->pids = pids;
	return 0;
}

/* --- names --- */

/* Into a plain file of ours that is there, which is cheaper than a new one on an overlay: 1. 0: there is none, so whatever a tenant has put there is
 * to go. Nothing is followed. */
static int write_in_place(const char *path, const char *text)
{
	struct stat st;
	ssize_t n = (ssize_t)strlen(text);
	auto_fd int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != 0 || st.st_gid != 0)
		return 0;
	return pwrite(fd, text, (size_t)n, 0) != n || (st.st_size > n && ftruncate(fd, n) < 0) ? -EIO : 1;
}

/* An image without /etc has nobody who looks there. */
static int replace_text(const char *path, const char *text)
{
	int r = write_in_place(path, text);

	if (r != 0)
		return MIN(r, 0);
	(void)unlink(path);
	r = write_text(path, text, O_CREAT | O_EXCL | O_NOFOLLOW);
	return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

/* A plain file of at most so much, or false. */
static bool read_plain(const char *path, char ret[static NAMES_TEXT])
{
	struct stat st;
	auto_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n = fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ? -1 : read(fd, ret, NAMES_TEXT - 1);

	ret[n < 0 ? 0 : n] = '\0';
	return n >= 0;
}

static void hosts_text(char ret[static NAMES_TEXT], const char *hostname)
{
	snprintf(ret, NAMES_TEXT, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%.64s\n", hostname);
}

static int write_hostname(const char *hostname)
{
	char text[NAMES_TEXT];

	snprintf(text, sizeof text, "%.64s\n", hostname);
	return replace_text("/etc/hostname", text);
}

/* As long as an id, which most hosts are named by: then nothing has to grow. */
#define NOBODY "00000000-0000-0000-0000-000000000000"

/* A new disk's: what every sandbox has in /etc, whatever the image says there. The gate of one with a network is where names are asked;
 * without one there is no way there, and a name is refused at once. */
static int begin_names(void)
{
	char text[NAMES_TEXT];
	int r = write_hostname(NOBODY);

	hosts_text(text, NOBODY);
	if (r == 0)
		r = replace_text("/etc/hosts", text);
	return r == 0 ? replace_text("/etc/resolv.conf", "nameserver " GATE_ADDR4 "\n") : r;
}

/* It is another machine than the one that its disk was of: its hosts only where nobody has changed them. */
static int rename_host(const char *hostname)
{
	char old[NAMES_TEXT], is[NAMES_TEXT], was[NAMES_TEXT];
	int r = 0;

	if (!read_plain("/etc/hostname", old))
		return 0;
	old[strcspn(old, "\n")] = '\0';
	hosts_text(was, old);
	if (read_plain("/etc/hosts", is) && strcmp(is, was) == 0) {
		hosts_text(is, hostname);
		r = replace_text("/etc/hosts", is);
	}
	return r == 0 ? write_hostname(hostname) : r;
}

static int set_names(const struct guest_setup *s)
{
	char line[40], now[HOST_NAME_MAX + 1] = "";
	int r = 0;

	if (s->hostname && (gethostname(now, sizeof now - 1) < 0 || strcmp(now, s->hostname) != 0)) {
		if (sethostname(s->hostname, strlen(s->hostname)) < 0)
			return -errno;
		r = rename_host(s->hostname);
	}
	if (r < 0 || !s->machine_id)
		return r;
	snprintf(line, sizeof line, "%s\n", s->machine_id);
	return replace_text("/etc/machine-id", line);
}

/* By id, since a name in a tenant's passwd may be anything. Environment: as sudo_client.c keeps it. fqdn would look for our name in vain. */
static const char sudoers[] = "# Written at each start: who may is part of the sandbox's settings.\n"
			      "Defaults !fqdn\n"
			      "Defaults env_keep += \"http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY\"\n"
			      "Defaults env_keep += \"SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS PIP_CERT GIT_SSL_CAINFO\"\n"
			      "#%-10u ALL=(ALL:ALL) NOPASSWD: ALL\n" /* one length for all */;

/* An image with sudo reads this folder. Whatever a tenant has put under the name goes, and no link is followed. */
static int permit_sudo(struct guest *g, bool yes)
{
	static const char path[] = "/etc/sudoers.d/caisson";
	char text[sizeof sudoers + 16];
	struct user u;
	struct err e;

	g->opt.no_new_privs = !yes;
	yes = yes && user_find(g->opt.user, &u, &e) == 0;
	if (yes)
		snprintf(text, sizeof text, sudoers, u.uid);
	int r = yes ? write_in_place(path, text) : 0;
	if (r != 0)
		return MIN(r, 0);
	if (unlink(path) < 0 && errno != ENOENT)
		return errno == ENOTDIR ? 0 : -errno;
	if (!yes)
		return 0;
	r = write_text(path, text, O_CREAT | O_EXCL | O_NOFOLLOW);
	if (r == 0 && chmod(path, 0440) < 0)
		r = -errno;
	return r == -ENOENT ? 0 : r;
}

static void keep_options(struct options *o, const struct guest_setup *s)
{
	if (s->user && s->user[0])
		o->user = xstrdup(s->user);
	if (s->workdir && s->workdir[0] == '/')
		o->workdir = xstrdup(s->workdir);
	if (s->envc == 0)
		return;
	o->env = xcalloc(s->envc + 1, sizeof *o->env);
	for (o->env_n = 0; o->env_n < s->envc; o->env_n++)
		o->env[o->env_n] = xstrdup(s->env[o->env_n]);
}

/* The first set-up's: what every copy has from its template. */
static int first_setup(struct guest *g, const char **ret_what)
{
	bool fresh = false;
	int r;

	*ret_what = "disk";
	if ((r = enter_root(&fresh)) < 0)
		return r;
	*ret_what = "root";
	if ((r = furnish_root()) < 0 || (fresh && (r = begin_names()) < 0) || (r = cover_boot_id(g)) < 0)
		return r;
	*ret_what = "network";
	if ((r = loopback_up()) < 0 || (r = vmnet_begin()) < 0)
		return r;
	*ret_what = "cgroups";
	keep_working_set();
	return make_groups(g);
}

static int set_up(struct guest *g, const struct guest_setup *s, const char **ret_what)
{
	const bool first = g->bare;
	int r = 0;

	*ret_what = "randomness";
	if (s->seed.p)
		r = reseed((struct str){ s->seed.p, s->seed.n - UUID_BYTES });
	if (r == 0 && s->time_ns) {
		*ret_what = "clock";
		r = set_clock(s->time_ns, s->seed.p != NULL);
	}
	if (r == 0 && first)
		r = first_setup(g, ret_what);
	if (r == 0 && (first || s->seed.p)) {
		*ret_what = "boot id";
		r = renew_boot_id(g, s->seed);
	}
	if (r == 0 && s->pids) {
		*ret_what = "limit on processes";
		r = limit_processes(g, s->pids);
	}
	if (r == 0) {
		*ret_what = "names";
		r = set_names(s);
	}
	if (r == 0 && s->link != GUEST_LINK_NONE) {
		*ret_what = "network device";
		r = vmnet_set(s->link, s->mac, first);
	}
	if (r == 0) {
		keep_options(&g->opt, s);
		g->bare = false;
	}
	if (r == 0 && s->sudo != GUEST_SUDO_AS_IT_IS) {
		*ret_what = "sudo";
		r = permit_sudo(g, s->sudo == GUEST_SUDO_YES);
	}
	return r;
}

int vm_setup(struct guest *g, const struct guest_setup *s, struct err *e)
{
	const char *what = "";
	int r = set_up(g, s, &what);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, -r, "%s", what);
	return s->line ? volumes_set(g, s, e) : 0;
}
