/* The listener and its connections. */
#include "dialect/ssh/internal.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#define PEERS_MAX	 256
#define UNPROVEN_MAX	 32 /* of them; beyond, the one that has waited longest makes room */
#define PROVE_WITHIN_MS	 20000 /* from the connection to the token */
#define TRIES_MAX	 3
#define SWEEP_EVERY_MS	 1000
#define STEPS_PER_TURN	 32
#define BACKLOG		 64

/* Modern ones only: the keys of clients since 2014. */
#define EXCHANGES "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256"
#define CIPHERS	  "chacha20-poly1305@openssh.com,aes256-gcm@openssh.com,aes128-gcm@openssh.com,aes256-ctr,aes128-ctr"
#define MACS	  "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha2-256,hmac-sha2-512"

/* OpenSSH's clients say that nobody reads a command's output any more (ssh ... | head), but only to one that goes by that name. */
#define BANNER "OpenSSH_compatible Caisson"

/* --- a connection --- */

static void on_handle_closed(uv_handle_t *h)
{
	struct ssh_server *s = h->data;

	if (--s->handles == 0 && s->freed)
		free(s);
}

static void on_poll_closed(uv_handle_t *h)
{
	struct peer *p = h->data;
	struct ssh_server *s = p->server;

	close_fd(p->fd);
	free(p);
	if (--s->handles == 0 && s->freed)
		free(s);
}

static void peer_free(struct peer *p)
{
	struct ssh_server *s = p->server;

	while (p->channels) {
		struct chan *c = p->channels;
		p->channels = c->next;
		chan_free(c);
	}
	DL_DELETE(s->peers, p);
	s->n_peers--;
	lib.ssh_event_free(p->event);
	/* Without a word: the socket may be full, and whoever is at its other side sees it close. */
	lib.ssh_free(p->session);
	uv_close((uv_handle_t *)&p->poll, on_poll_closed);
}

static void on_socket(uv_poll_t *poll, int status, int events);

static void wait_for_socket(struct peer *p)
{
	/* Who does not take the answers is asked for no more requests. */
	int events = lib.ssh_get_poll_flags(p->session) & SSH_WRITE_PENDING ? UV_WRITABLE : UV_READABLE;

	if (events != p->events && uv_poll_start(&p->poll, events, on_socket) == 0)
		p->events = events;
}

static void drop_ended(struct peer *p)
{
	struct chan **at = &p->channels;

	while (*at) {
		struct chan *c = *at;
		if (!c->over) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		chan_free(c);
	}
}

void peer_settle(struct peer *p)
{
	if (p->turning)
		return;
	p->turning = true;
	/* libssh tells of a window that opens only sometimes. And at every call it may write out what another channel waited for, or read
	 * what is for another: nothing would tell us of that. */
	bool again = true;
	while (again) {
		again = false;
		for (struct chan *c = p->channels; c; c = c->next) {
			chan_flush(c);
			chan_take(c);
		}
		for (struct chan *c = p->channels; c; c = c->next)
			again |= chan_could_go_on(c);
	}
	drop_ended(p);
	p->turning = false;
	if (lib.ssh_get_status(p->session) & (SSH_CLOSED | SSH_CLOSED_ERROR))
		p->over = true;
	if (p->over)
		(void)uv_poll_stop(&p->poll); /* the sweep frees it: who called may still be in it */
	else
		wait_for_socket(p);
}

static int check_token(ssh_session session, const char *user, void *ctx)
{
	struct peer *p = ctx;
	struct err e;

	(void)session;
	if (!p->sandbox[0] && strlen(user) < sizeof p->token && api_grant_open(p->server->api, str_of(user), GRANT_SHELL, 0, &p->caller, p->sandbox, &e) == 0) {
		snprintf(p->token, sizeof p->token, "%s", user);
		return SSH_AUTH_SUCCESS;
	}
	/* "none" comes first with many clients, whatever they have. */
	if (++p->tries > TRIES_MAX)
		p->over = true;
	return SSH_AUTH_DENIED;
}

static int check_password(ssh_session session, const char *user, const char *password, void *ctx)
{
	(void)password;
	return check_token(session, user, ctx);
}

static ssh_channel on_channel(ssh_session session, void *ctx)
{
	struct peer *p = ctx;

	(void)session;
	return p->sandbox[0] && p->n_channels < CHANNELS_MAX ? chan_open(p) : NULL;
}

/* What libssh does not know it hands over without its name, and that only to its log, the line before. One loop, so one of each. */
static bool saw_end_of_writing;

static void on_log(int priority, const char *function, const char *line, void *ctx)
{
	(void)priority, (void)function, (void)ctx;
	if (strstr(line, "channel_request for channel"))
		saw_end_of_writing = strstr(line, "Received a eow@openssh.com channel_request") != NULL;
}

static int on_message(ssh_session session, ssh_message m, void *ctx)
{
	struct peer *p = ctx;

	(void)session;
	if (!saw_end_of_writing || lib.ssh_message_type(m) != SSH_REQUEST_CHANNEL || lib.ssh_message_subtype(m) != SSH_CHANNEL_REQUEST_UNKNOWN)
		return 1; /* libssh answers */
	saw_end_of_writing = false;
	ssh_channel raw = lib.ssh_message_channel_request_channel(m);
	for (struct chan *c = p->channels; c; c = c->next)
		if (c->raw == raw)
			chan_unread(c);
	return 1;
}

static void turn(struct peer *p)
{
	p->turning = true;
	if (!p->exchanged) {
		int rc = lib.ssh_handle_key_exchange(p->session);
		p->exchanged = rc == SSH_OK;
		/* Not before: a session has its poll handle in a place of its own only once it was at work. */
		if (p->exchanged && lib.ssh_event_add_session(p->event, p->session) != SSH_OK)
			rc = SSH_ERROR;
		if (rc == SSH_ERROR) {
			log_info("msg=\"an SSH connection has failed\" reason=\"%s\"", lib.ssh_get_error(p->session));
			p->over = true;
		}
	}
	for (int i = 0; p->exchanged && !p->over && i < STEPS_PER_TURN; i++) {
		int rc = lib.ssh_event_dopoll(p->event, 0);
		if (rc == SSH_ERROR)
			p->over = true;
		if (rc != SSH_OK)
			break;
	}
	p->turning = false;
	peer_settle(p);
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
	struct peer *p = poll->data;

	(void)events;
	if (status < 0)
		p->over = true;
	else if (!p->over)
		turn(p);
	if (p->over)
		peer_free(p);
}

/* fd: libssh's own, which it closes. */
static int prepare(struct peer *p, int fd)
{
	struct ssh_server *s = p->server;

	p->session = lib.ssh_new();
	p->event = lib.ssh_event_new();
	p->callbacks = (struct ssh_server_callbacks_struct){
		.userdata = p,
		.auth_none_function = check_token,
		.auth_password_function = check_password,
		.channel_open_request_session_function = on_channel,
	};
	ssh_callbacks_init(&p->callbacks);
	if (p->session)
		lib.ssh_set_message_callback(p->session, on_message, p);
	if (!p->session || !p->event || lib.ssh_set_server_callbacks(p->session, &p->callbacks) != SSH_OK) {
		close_fd(fd);
		return -EIO;
	}
	if (lib.ssh_bind_accept_fd(s->bind, p->session, fd) != SSH_OK)
		return -EIO;
	lib.ssh_set_blocking(p->session, 0);
	lib.ssh_set_auth_methods(p->session, SSH_AUTH_METHOD_NONE | SSH_AUTH_METHOD_PASSWORD);
	return 0;
}

/* One that is full of strangers still lets in who has a token. */
static void make_room(struct ssh_server *s)
{
	struct peer *p, *oldest = NULL;
	size_t unproven = 0;

	DL_FOREACH (s->peers, p)
		if (!p->sandbox[0]) {
			oldest = oldest ? oldest : p;
			unproven++;
		}
	if (unproven >= UNPROVEN_MAX)
		peer_free(oldest);
}

/* A client whose machine has vanished is noticed after some minutes. */
static void keep_alive(int fd)
{
	const int on = 1, idle = 60, every = 30, times = 4;

	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct ssh_server *s = poll->data;

	(void)status, (void)events;
	auto_fd int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) { /* no descriptors: it would be ready for ever */
		s->resting = true;
		(void)uv_poll_stop(&s->poll);
	}
	if (fd < 0)
		return;
	make_room(s);
	if (s->n_peers >= PEERS_MAX)
		return;
	struct peer *p = xcalloc(1, sizeof *p);
	p->server = s;
	p->since_ms = now_ms();
	p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* libssh closes the one that it is given */
	if (p->fd < 0 || uv_poll_init(s->loop, &p->poll, p->fd) < 0) {
		close_fd(p->fd);
		free(p);
		return;
	}
	keep_alive(p->fd);
	p->poll.data = p;
	s->handles++;
	s->n_peers++;
	DL_APPEND(s->peers, p);
	if (prepare(p, take_fd(&fd)) < 0) {
		log_warn("msg=\"an SSH connection cannot be served\" reason=\"%s\"", lib.ssh_get_error(s->bind));
		peer_free(p);
		return;
	}
	turn(p);
	if (p->over)
		peer_free(p);
}

/* Whether it may be here still: its token is not revoked, not over, and its sandbox there. */
static bool still_granted(struct peer *p)
{
	struct caller caller;
	char sandbox[40];
	struct err e;

	return api_grant_open(p->server->api, str_of(p->token), GRANT_SHELL, 0, &caller, sandbox, &e) == 0;
}

static void on_sweep(uv_timer_t *timer)
{
	struct ssh_server *s = timer->data;
	struct peer *p, *next;

	DL_FOREACH_SAFE (s->peers, p, next)
		if (p->over || (p->sandbox[0] ? !still_granted(p) : now_ms() - p->since_ms > PROVE_WITHIN_MS))
			peer_free(p);
	if (s->resting && uv_poll_start(&s->poll, UV_READABLE, on_connection) == 0)
		s->resting = false;
}

/* --- the server --- */

static int make_key(const char *path, struct err *e)
{
	ssh_key key = NULL;

	if (access(path, F_OK) == 0)
		return 0;
	mode_t before = umask(077);
	int rc = lib.ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &key);
	if (rc == SSH_OK)
		rc = lib.ssh_pki_export_privkey_file(key, NULL, NULL, NULL, path);
	umask(before);
	lib.ssh_key_free(key);
	return rc == SSH_OK ? 0 : err_set(e, ERR_UNAVAILABLE, EIO, "the host key of SSH cannot be made in %s", path);
}

static int set_up_bind(struct ssh_server *s, const char *key_path, struct err *e)
{
	bool no = false;

	s->bind = lib.ssh_bind_new();
	/* Nothing that this machine's own configuration of libssh says. */
	if (!s->bind || lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_PROCESS_CONFIG, &no) < 0 ||
	    lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_HOSTKEY, key_path) < 0 || lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_BANNER, BANNER) < 0 ||
	    lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_KEY_EXCHANGE, EXCHANGES) < 0 ||
	    lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_CIPHERS_C_S, CIPHERS) < 0 ||
	    lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_CIPHERS_S_C, CIPHERS) < 0 ||
	    lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_HMAC_C_S, MACS) < 0 || lib.ssh_bind_options_set(s->bind, SSH_BIND_OPTIONS_HMAC_S_C, MACS) < 0)
		return err_set(e, ERR_UNAVAILABLE, EINVAL, "libssh refuses its settings%s%s", s->bind ? ": " : "", s->bind ? lib.ssh_get_error(s->bind) : "");
	return 0;
}

struct ssh_server *ssh_server_new(uv_loop_t *loop, struct api *api, int listener, const char *key_path, struct err *e)
{
	struct ssh_server *s = xcalloc(1, sizeof *s);

	*s = (struct ssh_server){ .loop = loop, .api = api, .listener = listener };
	if (lib_load(e) < 0 || make_key(key_path, e) < 0 || set_up_bind(s, key_path, e) < 0) {
		close_fd(listener);
		if (s->bind)
			lib.ssh_bind_free(s->bind);
		free(s);
		return NULL;
	}
	(void)lib.ssh_set_log_level(SSH_LOG_PACKET);
	(void)lib.ssh_set_log_callback(on_log);
	s->handles = 2;
	uv_poll_init(loop, &s->poll, listener);
	uv_timer_init(loop, &s->sweep);
	s->poll.data = s->sweep.data = s;
	return s;
}

void ssh_server_start(struct ssh_server *s)
{
	if (listen(s->listener, BACKLOG) < 0)
		log_error("msg=\"SSH cannot listen\" errno=%d", errno);
	uv_poll_start(&s->poll, UV_READABLE, on_connection);
	uv_timer_start(&s->sweep, on_sweep, SWEEP_EVERY_MS, SWEEP_EVERY_MS);
}

void ssh_server_free(struct ssh_server *s)
{
	if (!s)
		return;
	while (s->peers)
		peer_free(s->peers);
	s->freed = true;
	lib.ssh_bind_free(s->bind);
	uv_close((uv_handle_t *)&s->poll, on_handle_closed);
	uv_close((uv_handle_t *)&s->sweep, on_handle_closed);
	close_fd(s->listener);
}
