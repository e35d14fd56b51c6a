/* For tests of servers: raw client sockets driven from the same thread as the server's loop. Every wait runs the loop. */
#ifndef CAISSON_TESTS_NET_CLIENT_H
#define CAISSON_TESTS_NET_CLIENT_H

#include "base/buf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

enum { CLIENT_PATIENCE_MS = 20000 };

static uv_loop_t loop;

static inline void turn(void)
{
	if (uv_run(&loop, UV_RUN_NOWAIT) == 0 || uv_backend_timeout(&loop) != 0)
		usleep(100);
}

static inline void turn_for(uint64_t ms)
{
	for (uint64_t end = now_ms() + ms; now_ms() < end;)
		turn();
}

static inline int client_tcp(uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		abort();
	return fd;
}

static inline int client_unix(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		abort();
	return fd;
}

/* Sends all; false when the server reset the connection or does not read. */
static inline bool client_send(int fd, struct str bytes)
{
	uint64_t end = now_ms() + CLIENT_PATIENCE_MS;

	while (bytes.n && now_ms() < end) {
		ssize_t n = send(fd, bytes.p, bytes.n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			return false;
		bytes.p += MAX(n, 0);
		bytes.n -= (size_t)MAX(n, 0);
		turn();
	}
	return bytes.n == 0;
}

/* Reads what is there: bytes, 0 = end, -1 = nothing yet, -2 = reset. */
static inline ssize_t client_recv(int fd, struct buf *to, size_t max)
{
	char *p = buf_reserve(to, max);
	ssize_t n = recv(fd, p, max, MSG_DONTWAIT);

	if (n > 0)
		buf_grew(to, (size_t)n);
	return n >= 0 ? n : errno == EAGAIN ? -1 : -2;
}

/* Until `want` is in it, the end, a reset or the end of patience. Returns whether it is. */
static inline bool client_until(int fd, struct buf *to, const char *want)
{
	ssize_t n = -1;

	for (uint64_t end = now_ms() + CLIENT_PATIENCE_MS; now_ms() < end;) {
		if (want && to->len && memmem(to->data, to->len, want, strlen(want)))
			return true;
		if (n == 0 || n == -2)
			return !want && n == 0;
		n = client_recv(fd, to, 65536);
		if (n == -1)
			turn();
	}
	return false;
}

/* Until the server closes in an orderly way. */
static inline bool client_to_end(int fd, struct buf *to)
{
	return client_until(fd, to, NULL);
}

static inline size_t count(const struct buf *b, const char *what)
{
	size_t n = 0;
	const char *p = b->data, *end = b->data + b->len;

	while (p && (p = memmem(p, (size_t)(end - p), what, strlen(what)))) {
		n++;
		p++;
	}
	return n;
}

static inline void client_reset(int fd)
{
	struct linger l = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	close(fd);
}

#define WAIT_FOR(condition)                                                                                                                          \
	do {                                                                                                                                         \
		for (uint64_t end_ = now_ms() + CLIENT_PATIENCE_MS; !(condition) && now_ms() < end_;)                                                \
			turn();                                                                                                                      \
		assert_true(condition);                                                                                                              \
	} while (0)

#endif
