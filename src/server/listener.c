/* Listening sockets, TCP and unix. Over the connection limit they are not polled until a connection ends; when the process
 * is out of descriptors, a spare one is given up to take and close a connection (else the kernel would report it for ever),
 * and listening rests for a moment. */
#include "server/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

enum { ACCEPTS_PER_TURN = 64, BACKLOG = 1024, RETRY_MS = 100 };

static void on_readable(uv_poll_t *h, int status, int events);

static void set_polling(struct listener *l, bool on)
{
	if (l->polling == on)
		return;
	l->polling = on;
	if (on)
		uv_poll_start(&l->poll, UV_READABLE, on_readable);
	else
		uv_poll_stop(&l->poll);
}

void listener_resume_all(struct server *s)
{
	if (!s->started || s->n_conns >= s->max_conns || uv_is_active((uv_handle_t *)&s->accept_retry))
		return;
	for (struct listener *l = s->listeners; l; l = l->next)
		set_polling(l, true);
}

static void on_retry(uv_timer_t *t)
{
	listener_resume_all(t->data);
}

void listener_pause_all(struct server *s, bool retry_later)
{
	for (struct listener *l = s->listeners; l; l = l->next)
		set_polling(l, false);
	if (retry_later)
		uv_timer_start(&s->accept_retry, on_retry, RETRY_MS, 0);
}

static void out_of_descriptors(struct server *s, int fd)
{
	s->spare_fd = close_fd(s->spare_fd);
	close_fd(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	listener_pause_all(s, true);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
	struct listener *l = h->data;
	struct server *s = l->server;

	(void)events;
	if (status < 0)
		return;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		if (s->n_conns >= s->max_conns) {
			listener_pause_all(s, false);
			return;
		}
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			conn_accept(s, fd, l->path != NULL);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			out_of_descriptors(s, l->fd);
		else if (errno == ECONNABORTED || errno == EINTR)
			continue;
		return;
	}
}

static int add(struct server *s, int *fd, const char *path, struct err *e)
{
	struct stat st;

	if (listen(*fd, BACKLOG) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "listen");
	struct listener *l = xcalloc(1, sizeof *l);
	int r = uv_poll_init(s->loop, &l->poll, *fd);
	if (r < 0) {
		free(l);
		return err_set(e, ERR_INTERNAL, -r, "uv_poll_init: %s", uv_strerror(r));
	}
	l->server = s;
	l->poll.data = l;
	l->fd = take_fd(fd);
	l->path = xstrdup(path);
	if (path && stat(path, &st) == 0) {
		l->dev = st.st_dev;
		l->ino = st.st_ino;
	}
	s->n_handles++;
	DL_APPEND(s->listeners, l);
	listener_resume_all(s);
	return 0;
}

static int parse_address(const char *address, struct sockaddr_storage *ret_sa, socklen_t *ret_len, struct err *e)
{
	const char *colon = strrchr(address, ':');
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret_sa;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_sa;
	uint64_t port;
	char host[INET6_ADDRSTRLEN + 2];

	memset(ret_sa, 0, sizeof *ret_sa);
	if (!colon || parse_u64(str_of(colon + 1), UINT16_MAX, &port) < 0 || (size_t)(colon - address) >= sizeof host)
		return err_set(e, ERR_INVALID, EINVAL, "\"%s\" is not ADDRESS:PORT", address);
	size_t n = (size_t)(colon - address);
	memcpy(host, address, n);
	host[n] = '\0';
	if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		*ret_len = sizeof *v6;
		if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1)
			return 0;
	} else {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		*ret_len = sizeof *v4;
		if (inet_pton(AF_INET, streq(host, "localhost") ? "127.0.0.1" : host, &v4->sin_addr) == 1)
			return 0;
	}
	return err_set(e, ERR_INVALID, EINVAL, "\"%s\" is not an IP address (like 127.0.0.1 or [::1])", host);
}

int server_bind_tcp(const char *address, uint16_t *ret_port, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len;
	int on = 1, r = parse_address(address, &sa, &len, e);

	if (r < 0)
		return r;
	auto_fd int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (sa.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&sa, len) < 0 || getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't listen on %s", address);
	if (ret_port)
		*ret_port = ntohs(sa.ss_family == AF_INET ? ((struct sockaddr_in *)&sa)->sin_port : ((struct sockaddr_in6 *)&sa)->sin6_port);
	return take_fd(&fd);
}

int server_listen_tcp(struct server *s, const char *address, uint16_t *ret_port, struct err *e)
{
	auto_fd int fd = server_bind_tcp(address, ret_port, e);

	return fd < 0 ? fd : add(s, &fd, NULL, e);
}

/* A socket file that nobody listens on is what a killed server left. */
static int remove_dead_socket(const struct sockaddr_un *sa, struct err *e)
{
	struct stat st;

	if (lstat(sa->sun_path, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_CONFLICT, EEXIST, "%s exists and is not a socket", sa->sun_path);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "socket");
	if (connect(fd, (const struct sockaddr *)sa, sizeof *sa) == 0 || errno != ECONNREFUSED)
		return err_set(e, ERR_CONFLICT, EADDRINUSE, "%s is in use by a running server", sa->sun_path);
	if (unlink(sa->sun_path) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't remove the old socket %s", sa->sun_path);
	return 0;
}

int server_listen_unix(struct server *s, const char *path, struct err *e)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof sa.sun_path)
		return err_set(e, ERR_INVALID, ENAMETOOLONG, "socket path %s is longer than %zu bytes", path, sizeof sa.sun_path - 1);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	int r = remove_dead_socket(&sa, e);
	if (r < 0)
		return r;
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "socket");
	/* fchmod before bind gives the file its mode at birth: no moment in which others may connect, no process-wide umask. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't listen on %s", path);
	r = add(s, &fd, path, e);
	if (r < 0)
		unlink(path);
	return r;
}

static void on_closed(uv_handle_t *h)
{
	struct listener *l = h->data;

	server_unref(l->server);
	free(l->path);
	free(l);
}

void listener_close_all(struct server *s)
{
	struct stat st;

	while (s->listeners) {
		struct listener *l = s->listeners;
		DL_DELETE(s->listeners, l);
		uv_close((uv_handle_t *)&l->poll, on_closed);
		l->fd = close_fd(l->fd);
		if (l->path && stat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
			unlink(l->path);
	}
}
