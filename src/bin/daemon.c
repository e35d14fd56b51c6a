#include "bin/daemon.h"

#include "api/api.h"
#include "core/core.h"
#include "dialect/daytona/daytona.h"
#include "dialect/mcp/mcp.h"
#include "dialect/native/native.h"
#include "dialect/ssh/ssh.h"
#include "egress/egress.h"
#include "server/server.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BOUNDARIES_MAX = 4, GRACE_MS = 2000, END_MS = 120000, END_LOST_MS = 10000, HEAP_SLACK = 4 << 20 };

/* --- the dialects: all that a new one needs here is a line in the table --- */

/* Of sandboxes that do not say; never more than what is permitted. */
static enum network_mode default_network(const struct serve_options *o, enum serve_api api, enum network_mode expected)
{
	enum network_mode mode = o->network[api] >= 0 ? (enum network_mode)o->network[api] : expected;

	return o->ceiling.mode == NETWORK_PUBLIC ? mode : NETWORK_NONE;
}

static void *open_native(uv_loop_t *loop, struct api *api, struct server *server, const struct serve_options *o, const char *ssh, struct err *e)
{
	(void)ssh;
	struct native *n = native_new(loop, api, server);
	if (!n)
		err_set(e, ERR_INTERNAL, EINVAL, "the native dialect's routes were refused");
	else
		native_set_network(n, default_network(o, SERVE_NATIVE, NETWORK_NONE));
	return n;
}

static void close_native(void *n)
{
	native_free(n);
}

static void *open_daytona(uv_loop_t *loop, struct api *api, struct server *server, const struct serve_options *o, const char *ssh, struct err *e)
{
	const struct daytona_options options = { .public_url = o->public_url, .preview_domain = o->preview_domain, .ssh = ssh,
	                                         .network = default_network(o, SERVE_DAYTONA, NETWORK_PUBLIC) };

	return daytona_new(loop, api, server, &options, e);
}

static void start_daytona(void *d)
{
	daytona_started(d);
}

static void close_daytona(void *d)
{
	daytona_free(d);
}

static void *open_mcp(uv_loop_t *loop, struct api *api, struct server *server, const struct serve_options *o, const char *ssh, struct err *e)
{
	(void)loop, (void)ssh;
	const struct mcp_options options = { .public_url = o->public_url,
		                             .preview_path = "/daytona/preview/{id}~{token}/{port}/",
		                             .network = default_network(o, SERVE_MCP, NETWORK_NONE) };

	return mcp_new(api, server, &options, e);
}

static void close_mcp(void *m)
{
	mcp_free(m);
}

static const struct {
	/* ssh: the address where SSH is served, or NULL */
	void *(*open)(uv_loop_t *loop, struct api *api, struct server *server, const struct serve_options *o, const char *ssh, struct err *e);
	void (*close)(void *dialect);
	bool after_server; /* it is closed once no request can reach it any more */
	void (*started)(void *dialect); /* the sandboxes of an earlier server have been adopted; or NULL */
} dialects[] = {
	{ open_native, close_native, true, NULL },
	{ open_daytona, close_daytona, false, start_daytona },
	{ open_mcp, close_mcp, true, NULL },
};

struct daemon {
	uv_loop_t *loop;
	const struct serve_options *o;
	char *url; /* as printed */
	struct server *server;
	struct boundary *boundaries[BOUNDARIES_MAX];
	size_t n_boundaries;
	struct store *store;
	struct image_store *images;
	struct audit *audit;
	struct egress *egress;
	struct nets publish;
	struct core *core;
	struct api *api;
	void *dialects[ARRAY_LEN(dialects)];
	int ssh_socket; /* bound, until the server of SSH has it */
	char *ssh_address;
	struct ssh_server *ssh;
	uv_signal_t on_term, on_int;
	uv_poll_t lifetime;
	uv_timer_t deadline; /* of the end; it keeps nothing going */
	bool watching_lifetime, ending, lost;
	int exit_code;
};

static int bind_ssh(struct daemon *d, struct err *e)
{
	uint16_t port = 0;

	if (!d->o->ssh)
		return 0;
	d->ssh_socket = server_bind_tcp(d->o->ssh, &port, e);
	if (d->ssh_socket < 0)
		return d->ssh_socket;
	d->ssh_address = xasprintf("%.*s:%u", (int)(strrchr(d->o->ssh, ':') - d->o->ssh), d->o->ssh, port);
	return 0;
}

int daemon_new(uv_loop_t *loop, const struct serve_options *o, struct daemon **ret, struct err *e)
{
	struct daemon *d = xcalloc(1, sizeof *d);
	uint16_t port = 0;
	int rc = 0;

	d->loop = loop;
	d->o = o;
	d->ssh_socket = -EBADF;
	d->server = server_new(loop);
	if (o->listen)
		rc = server_listen_tcp(d->server, o->listen, &port, e);
	if (rc >= 0)
		rc = server_listen_unix(d->server, o->socket, e);
	if (rc >= 0)
		rc = bind_ssh(d, e);
	if (rc < 0) {
		daemon_free(d);
		return rc;
	}
	if (o->public_url) { /* the name in a Host or Origin header that is ours, besides loopback ones */
		const char *host = strstr(o->public_url, "://");
		host = host ? host + 3 : o->public_url;
		auto_free char *name = xstrndup(host, strcspn(host, ":/"));
		server_allow_host(d->server, name);
	}
	if (o->listen) {
		const char *colon = strrchr(o->listen, ':');
		d->url = xasprintf("http://%.*s:%u", (int)(colon - o->listen), o->listen, port);
	} else {
		d->url = xasprintf("unix:%s", o->socket);
	}
	*ret = d;
	return 0;
}

void daemon_add_boundary(struct daemon *d, struct boundary *b)
{
	assert(d->n_boundaries < BOUNDARIES_MAX);
	d->boundaries[d->n_boundaries++] = b;
}

static void free_boundaries(struct daemon *d)
{
	while (d->n_boundaries > 0) {
		struct boundary *b = d->boundaries[--d->n_boundaries];
		b->ops->free(b);
	}
}

void daemon_free(struct daemon *d)
{
	if (!d)
		return;
	free_boundaries(d); /* of a server that did not get as far as to close them */
	server_free(d->server);
	close_fd(d->ssh_socket);
	free(d->ssh_address);
	free(d->url);
	free(d);
}

/* --- ending: refuse new work, let answers finish, end or leave the sandboxes, close everything, the loop runs out --- */

static void close_dialects(struct daemon *d, bool after_server)
{
	for (size_t i = 0; i < ARRAY_LEN(dialects); i++) {
		if (d->dialects[i] && dialects[i].after_server == after_server)
			dialects[i].close(take_ptr(&d->dialects[i]));
	}
}

static void close_front(struct daemon *d)
{
	close_dialects(d, false);
	ssh_server_free(take_ptr(&d->ssh));
	if (d->server)
		server_free(take_ptr(&d->server));
	close_dialects(d, true);
}

/* No request is left: the dialects and the server close their handles, and the loop runs out. */
static void on_core_closed(void *ctx)
{
	struct daemon *d = ctx;

	close_front(d);
	free_boundaries(d);
	egress_close(d->egress);
}

static void close_core(void *ctx)
{
	struct daemon *d = ctx;

	core_close(d->core, d->lost, on_core_closed, d);
}

static void on_server_stopped(void *ctx)
{
	struct daemon *d = ctx;

	if (d->o->ephemeral && !d->lost)
		core_delete_all(d->core, close_core, d);
	else
		close_core(d);
}

/* Something is waited for that does not come. Whoever looks after this program starts it anew when it has ended, and not before; and a daemon that was
 * killed leaves nothing that the next one does not know how to take up. */
static void on_deadline(uv_timer_t *h)
{
	(void)h;
	log_error("msg=\"the end takes too long: what is left of it is left to the next server\"");
	_exit(1);
}

static void begin_end(struct daemon *d)
{
	uv_timer_start(&d->deadline, on_deadline, d->lost ? END_LOST_MS : END_MS, 0);
	if (d->ending)
		return;
	d->ending = true;
	uv_close((uv_handle_t *)&d->on_term, NULL);
	uv_close((uv_handle_t *)&d->on_int, NULL);
	if (d->watching_lifetime)
		uv_close((uv_handle_t *)&d->lifetime, NULL);
	/* What was begun over it ends while there is still somebody to end it. */
	ssh_server_free(take_ptr(&d->ssh));
	server_stop(d->server, d->lost || d->o->ephemeral ? 0 : GRACE_MS, on_server_stopped, d);
}

void daemon_edge(void *daemon, int fd)
{
	struct daemon *d = daemon;

	if (d->egress)
		egress_attach(d->egress, fd);
	else
		close_fd(fd);
}

void daemon_lost(struct daemon *d, const char *why)
{
	if (d->lost)
		return;
	log_error("msg=\"%s\"", why);
	d->lost = true;
	if (!d->ending)
		d->exit_code = 1;
	begin_end(d);
}

static void on_signal(uv_signal_t *h, int signo)
{
	log_info("msg=\"ending on signal %d\"", signo);
	begin_end(h->data);
}

static void on_lifetime(uv_poll_t *h, int status, int events)
{
	char byte;

	(void)status;
	(void)events;
	int fd;
	if (uv_fileno((uv_handle_t *)h, &fd) == 0 && read(fd, &byte, 1) < 0 && errno == EAGAIN)
		return;
	begin_end(h->data);
}

/* --- beginning --- */

static int write_first_key(struct daemon *d, const char *path, struct err *e)
{
	char key[KEY_TEXT_SIZE], id[KEY_ID_SIZE];
	struct keys *keys = core_keys(d->core);

	if (keys_count(keys) > 0)
		return 0;
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot write the first API key to %s", path);
	if (keys_create(keys, "first", "default", true, key, id, e) < 0)
		return -EIO;
	size_t n = strlen(key);
	key[n] = '\n';
	if (ftruncate(fd, 0) < 0 || write(fd, key, n + 1) != (ssize_t)(n + 1))
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot write the first API key to %s", path);
	explicit_bzero(key, sizeof key);
	return 0;
}

static void on_started(void *ctx, const struct err *e)
{
	struct daemon *d = ctx;

	if (e) {
		daemon_lost(d, e->message);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
		if (dialects[i].started)
			dialects[i].started(d->dialects[i]);
	server_start(d->server);
	const struct boundary *b = d->boundaries[0];
	const char *why = NULL, *how = b->ops->accelerator ? b->ops->accelerator(d->boundaries[0], &why) : NULL;
	printf("ready %s\nboundary %s%s%s%s%s\n", d->url, b->ops->name, how ? ", " : "", how ? how : "", why ? ": " : "", why ? why : "");
	if (d->ssh) {
		ssh_server_start(d->ssh);
		printf("ssh %s\n", d->ssh_address);
	}
	fflush(stdout);
}

static void watch(struct daemon *d)
{
	uv_signal_init(d->loop, &d->on_term);
	uv_signal_init(d->loop, &d->on_int);
	uv_timer_init(d->loop, &d->deadline);
	uv_unref((uv_handle_t *)&d->deadline);
	d->on_term.data = d->on_int.data = d->lifetime.data = d;
	uv_signal_start(&d->on_term, on_signal, SIGTERM);
	uv_signal_start(&d->on_int, on_signal, SIGINT);
	if (d->o->lifetime_fd >= 0) {
		fcntl(d->o->lifetime_fd, F_SETFL, O_NONBLOCK);
		d->watching_lifetime = uv_poll_init(d->loop, &d->lifetime, d->o->lifetime_fd) == 0;
		d->lifetime.data = d;
		if (d->watching_lifetime)
			uv_poll_start(&d->lifetime, UV_READABLE | UV_DISCONNECT, on_lifetime);
	}
}

static void on_key_revoked(void *ctx, const char *key_id)
{
	server_cut(((struct daemon *)ctx)->server, key_id);
}

static int assemble(struct daemon *d, const char *state_dir, const char *key_path, struct err *e)
{
	auto_free char *db = xasprintf("%s/caisson.db", state_dir);

	int rc = store_open(db, &d->store, e);
	if (rc < 0)
		return rc;
	auto_free char *audit_dir = xasprintf("%s/audit", state_dir);
	const struct audit_options audit = { .dir = audit_dir, .keep_bytes = d->o->audit_keep };
	rc = audit_open(&audit, &d->audit, e);
	if (rc < 0)
		return rc;
	d->images = image_store_new(d->o->images);
	d->egress = egress_new(d->loop);
	if (!streq(d->o->publish, "none") && nets_parse(d->o->publish, &d->publish) < 0)
		return err_set(e, ERR_INVALID, EINVAL, "--publish %s: not address ranges", d->o->publish);
	const struct core_options core = {
		.data_dir = state_dir,
		.store = d->store,
		.images = d->images,
		.boundaries = d->boundaries,
		.n_boundaries = d->n_boundaries,
		.audit = d->audit,
		.egress = d->egress,
		.ceiling = &d->o->ceiling,
		.publish = &d->publish,
		.spares = d->o->pool >= 0 ? (size_t)d->o->pool : d->o->ephemeral ? 0 : CORE_SPARES_DEFAULT,
	};
	d->core = core_new(d->loop, &core);
	egress_on_event(d->egress, core_verdict, d->core);
	rc = write_first_key(d, key_path, e);
	if (rc < 0)
		return rc;
	d->api = api_new(d->loop, d->core);
	api_on_key_revoked(d->api, on_key_revoked, d);
	if (d->ssh_address) {
		auto_free char *key = xasprintf("%s/ssh-host-key", state_dir);
		d->ssh = ssh_server_new(d->loop, d->api, take_fd(&d->ssh_socket), key, e);
		if (!d->ssh)
			return -EINVAL;
	}
	for (size_t i = 0; i < ARRAY_LEN(dialects); i++) {
		d->dialects[i] = dialects[i].open(d->loop, d->api, d->server, d->o, d->ssh_address, e);
		if (!d->dialects[i])
			return -EINVAL;
	}
	return 0;
}

static void disassemble(struct daemon *d)
{
	close_front(d);
	api_free(d->api);
	core_free(d->core);
	egress_free(d->egress);
	nets_done(&d->publish);
	image_store_free(d->images);
	audit_close(d->audit);
	if (d->store)
		store_close(d->store);
}

/* What is parsed may be a secret's value, and its memory is soon another's. */
static void free_json(void *p)
{
	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

int daemon_run(struct daemon *d, const char *state_dir, const char *key_path)
{
	struct err e;

	signal(SIGPIPE, SIG_IGN);
	/* Buffers of a request come and go: the heap must not shrink and grow with each. */
	json_set_alloc_funcs(malloc, free_json);
	mallopt(M_TRIM_THRESHOLD, HEAP_SLACK);
	mallopt(M_MMAP_THRESHOLD, HEAP_SLACK);
	if (assemble(d, state_dir, key_path, &e) < 0) {
		fprintf(stderr, "caisson: %s\n", e.message);
		disassemble(d);
		return 1;
	}
	watch(d);
	core_start(d->core, on_started, d);
	uv_run(d->loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&d->deadline, NULL);
	uv_run(d->loop, UV_RUN_DEFAULT);
	disassemble(d);
	return d->exit_code;
}
