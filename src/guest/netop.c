#include "guest/fileop.h"
#include "guest/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* --- connect --- */

static int dial(uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct {
		int family;
		const void *address;
		socklen_t len;
	} const tries[] = { { AF_INET, &v4, sizeof v4 }, { AF_INET6, &v6, sizeof v6 } };
	int error = 0;

	for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
		int fd = socket(tries[i].family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, tries[i].address, tries[i].len) == 0)
			return fd;
		if (i == 0 || error == 0)
			error = errno; /* what IPv4 said is what people expect */
		close_fd(fd);
	}
	return -error;
}

struct relay {
	struct port *port;
	int fd;
	struct str to;     /* from the daemon, not yet written to the socket: in the port's buffer, or in held */
	bool in_eof, shut; /* the socket sends no more; we have told it that we do not either */
	char held[GUEST_PAYLOAD_MAX];
};

/* What is not written yet stays where it is when more is read into the port's buffer, which moves. */
static void hold(struct relay *r)
{
	if (r->to.n == 0 || (r->to.p >= r->held && r->to.p < r->held + sizeof r->held))
		return;
	memcpy(r->held, r->to.p, MIN(r->to.n, sizeof r->held)); /* one frame: never more */
	r->to.p = r->held;
}

static int from_socket(struct relay *r)
{
	char bytes[32 * 1024];
	ssize_t n = recv(r->fd, bytes, MIN(sizeof bytes, port_room(r->port)), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return -errno;
	if (n == 0) {
		r->in_eof = true;
		port_data_end(r->port);
	} else {
		port_data(r->port, (struct str){ bytes, (size_t)n });
	}
	port_flush(r->port);
	return 0;
}

static int to_socket(struct relay *r)
{
	ssize_t n = send(r->fd, r->to.p, r->to.n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return -errno;
	r->to.p += n;
	r->to.n -= (size_t)n;
	if (r->to.n == 0)
		port_consumed(r->port, (size_t)n);
	return 0;
}

/* The daemon's frames are only read when the last one has been passed on: the socket's slowness is the daemon's too. Credit must
 * still be seen then, or both would wait for each other: so reading goes on, which the credit given bounds. */
static int relay_turn(struct relay *r)
{
	bool reading = r->to.n == 0 && !(r->port->eof && r->port->in.len == 0);
	bool want_credit = port_room(r->port) == 0;
	struct pollfd p[2] = {
		{ .fd = r->port->fd, .events = reading || want_credit ? POLLIN : 0 },
		{ .fd = r->fd, .events = (short)((!r->in_eof && port_room(r->port) ? POLLIN : 0) | (r->to.n ? POLLOUT : 0)) },
	};
	int e = 0;

	if (p[1].events == 0)
		p[1].fd = -1; /* a hang-up would be reported for ever */
	if (poll(p, 2, -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (p[0].revents & (POLLIN | POLLHUP | POLLERR)) {
		hold(r);
		port_fill(r->port);
		if (want_credit) /* it may be behind data that waits for the program, and the program for it */
			port_sort(r->port);
	}
	if (e == 0 && p[1].revents & (POLLIN | POLLHUP | POLLERR) && p[1].events & POLLIN)
		e = from_socket(r);
	if (e == 0 && p[1].revents & (POLLOUT | POLLHUP | POLLERR) && r->to.n)
		e = to_socket(r);
	return e;
}

int op_connect(struct work *w, struct err *e)
{
	struct relay r = { .port = &w->port, .fd = dial(w->req->port) };
	int one = 1, error = 0;

	if (r.fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -r.fd, "nothing answers on port %u in the sandbox", w->req->port);
	(void)setsockopt(r.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	port_opened(&w->port);
	port_flush(&w->port);
	while (error == 0) {
		if (r.to.n == 0 && !port_next(&w->port, &r.to) && w->port.eof && !r.shut) {
			(void)shutdown(r.fd, SHUT_WR);
			r.shut = true;
		}
		if (r.in_eof && r.shut)
			break;
		error = relay_turn(&r);
	}
	close_fd(r.fd);
	return error < 0 ? err_sys(e, ERR_UNAVAILABLE, -error, "the connection to port %u broke", w->req->port) : 0;
}

/* --- ports --- */

static void add_port(struct buf *values, unsigned *seen, size_t *seen_n, unsigned port, bool loopback)
{
	char number[8];

	for (size_t i = 0; i < *seen_n; i++)
		if (seen[i] == port)
			return;
	if (*seen_n == 1024)
		return; /* fits one frame; nobody needs more */
	seen[(*seen_n)++] = port;
	snprintf(number, sizeof number, "%u", port);
	(void)guest_value_add(values, number, loopback ? "loopback" : "any");
}

/* "  0: 0100007F:1F90 00000000:0000 0A ...": local address and port, the other end, state; 0A listens. */
static void scan_line(char *line, struct buf *values, unsigned *seen, size_t *seen_n)
{
	char *at = strchr(line, ':');
	char *address = at ? at + 1 + strspn(at + 1, " ") : NULL;
	char *port = address ? strchr(address, ':') : NULL;
	char *other = port ? strchr(port, ' ') : NULL;
	char *state = other ? strchr(other + 1, ' ') : NULL;

	if (!state || strtoul(state, NULL, 16) != 0x0a)
		return;
	*port = '\0';
	unsigned long number = strtoul(port + 1, NULL, 16);
	if (number > 0 && number < 65536)
		add_port(values, seen, seen_n, (unsigned)number, streq(address, "0100007F") || streq(address, "00000000000000000000000001000000"));
}

static void scan(const char *path, struct buf *values, unsigned *seen, size_t *seen_n)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_buf struct buf b;
	ssize_t n = 1;

	buf_init(&b, 64 * 1024 * 1024);
	while (fd >= 0 && n > 0) {
		char *to = buf_reserve(&b, 16384);
		n = to ? read(fd, to, 16384) : 0;
		buf_grew(&b, (size_t)MAX(n, 0));
	}
	for (char *line = b.data, *end; line && (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		scan_line(line, values, seen, seen_n);
	}
}

int op_ports(struct work *w, struct err *e)
{
	auto_buf struct buf values;
	unsigned seen[1024];
	size_t n = 0;

	(void)e;
	buf_init(&values, GUEST_PAYLOAD_MAX);
	scan("/proc/net/tcp", &values, seen, &n);
	scan("/proc/net/tcp6", &values, seen, &n);
	port_values(&w->port, &values);
	return 0;
}

/* --- questions --- */

static void add_number(struct buf *values, const char *name, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof text, "%llu", (unsigned long long)v);
	(void)guest_value_add(values, name, text);
}

int op_userinfo(struct work *w, struct err *e)
{
	auto_buf struct buf values;
	struct stat st;
	const char *workdir = w->opt->workdir;

	(void)e;
	buf_init(&values, GUEST_PAYLOAD_MAX);
	if (!workdir || stat(workdir, &st) < 0)
		workdir = stat(w->user.home, &st) == 0 ? w->user.home : "/"; /* as a run's: see launch.c */
	(void)guest_value_add(&values, "name", w->user.name);
	add_number(&values, "uid", w->user.uid);
	add_number(&values, "gid", w->user.gid);
	(void)guest_value_add(&values, "home", w->user.home);
	(void)guest_value_add(&values, "shell", w->user.shell);
	(void)guest_value_add(&values, "workdir", workdir);
	port_values(&w->port, &values);
	return 0;
}

/* What runs in a machine; elsewhere there is no such group to see, and whoever made the sandbox knows. */
static void add_processes(struct buf *values)
{
	char text[24];
	auto_fd int fd = open(VM_GROUP "/pids.current", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (n <= 0)
		return;
	text[n] = '\0';
	add_number(values, "processes", strtoull(text, NULL, 10));
}

int op_disk(struct work *w, struct err *e)
{
	auto_buf struct buf values;
	struct statvfs s;

	buf_init(&values, 1024);
	if (statvfs("/", &s) < 0)
		return path_error(e, errno, "cannot ask about", "/");
	add_number(&values, "bytes_total", (uint64_t)s.f_blocks * s.f_frsize);
	add_number(&values, "bytes_free", (uint64_t)s.f_bfree * s.f_frsize);
	add_number(&values, "bytes_available", (uint64_t)s.f_bavail * s.f_frsize);
	add_number(&values, "inodes_total", s.f_files);
	add_number(&values, "inodes_free", s.f_ffree);
	add_processes(&values);
	port_values(&w->port, &values);
	return 0;
}

int op_sync(struct work *w, struct err *e)
{
	auto_fd int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)w;
	if (fd < 0 || syncfs(fd) < 0)
		return path_error(e, errno, "cannot flush", "/");
	return 0;
}
