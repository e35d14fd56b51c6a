#include "server/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <utlist.h>

/* --- tasks --- */

/* Runs what is posted now; what is posted meanwhile waits for the next turn, so that no pair of tasks can hold the loop. */
static void on_idle(uv_idle_t *h)
{
	struct server *s = h->data;
	size_t n = 0;

	for (struct task *t = s->tasks; t; t = t->next)
		n++;
	while (n-- && s->tasks) {
		struct task *t = s->tasks;
		task_cancel(s, t);
		t->run(t);
	}
	if (!s->tasks)
		uv_idle_stop(&s->idle);
}

void task_post(struct server *s, struct task *t)
{
	if (t->posted)
		return;
	t->posted = true;
	DL_APPEND(s->tasks, t);
	uv_idle_start(&s->idle, on_idle);
}

void task_cancel(struct server *s, struct task *t)
{
	if (!t->posted)
		return;
	t->posted = false;
	DL_DELETE(s->tasks, t);
}

/* --- life --- */

static void run_stopped(struct task *t)
{
	struct server *s = container_of(t, struct server, stop_task);

	if (s->stopped)
		s->stopped(s->stopped_ctx);
}

struct server *server_new(uv_loop_t *loop)
{
	struct server *s = xcalloc(1, sizeof *s);

	s->loop = loop;
	s->max_conns = DEFAULT_MAX_CONNECTIONS;
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	s->stop_task.run = run_stopped;
	buf_init(&s->scratch, 1 << 20);
	uv_idle_init(loop, &s->idle);
	uv_timer_init(loop, &s->timer);
	uv_timer_init(loop, &s->accept_retry);
	uv_timer_init(loop, &s->grace);
	s->idle.data = s->timer.data = s->accept_retry.data = s->grace.data = s;
	s->n_handles = 4;
	signal(SIGPIPE, SIG_IGN); /* belt to MSG_NOSIGNAL's braces: shutdown and others can raise it too */
	return s;
}

int server_add_dialect(struct server *s, const struct dialect *d, struct err *e)
{
	int r = route_check(d, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < s->n_dialects; i++)
		if (streq(s->dialects[i]->prefix, d->prefix))
			return err_set(e, ERR_INTERNAL, EEXIST, "dialects %s and %s have the same prefix", s->dialects[i]->name, d->name);
	s->dialects = xreallocarray(s->dialects, s->n_dialects + 1, sizeof *s->dialects);
	s->dialects[s->n_dialects++] = d;
	return 0;
}

void server_set_host_claim(struct server *s, bool (*claim)(struct request *r, struct str host, void *ctx), void *ctx)
{
	s->claim = claim;
	s->claim_ctx = ctx;
}

void server_start(struct server *s)
{
	s->started = true;
	listener_resume_all(s);
}

void server_allow_host(struct server *s, const char *name)
{
	s->allowed_hosts = xreallocarray(s->allowed_hosts, s->n_allowed_hosts + 1, sizeof *s->allowed_hosts);
	s->allowed_hosts[s->n_allowed_hosts++] = xstrdup(name);
}

void server_set_max_connections(struct server *s, size_t n)
{
	s->max_conns = n;
	listener_resume_all(s);
}

size_t server_connections(const struct server *s)
{
	return s->n_conns;
}

void server_conn_closed(struct server *s)
{
	s->n_conns--;
	if (s->stopping && s->n_conns == 0 && !s->freed) {
		uv_timer_stop(&s->grace);
		task_post(s, &s->stop_task);
	}
	if (!s->stopping)
		listener_resume_all(s);
	server_unref(s);
}

static void on_grace_over(uv_timer_t *t)
{
	struct server *s = t->data;
	for (struct conn *c = s->conns; c; c = c->next)
		conn_break(c);
}

void server_cut(struct server *s, const char *holder)
{
	struct conn *c;

	DL_FOREACH (s->conns, c)
		if (!c->running && streq(c->holder, holder) && (c->request || c->mode == CONN_SOCKET || c->mode == CONN_TUNNEL))
			conn_break(c);
}

void server_stop(struct server *s, uint64_t grace_ms, void (*done)(void *ctx), void *ctx)
{
	if (s->stopping)
		return;
	s->stopping = true;
	s->stopped = done;
	s->stopped_ctx = ctx;
	uv_timer_stop(&s->accept_retry);
	listener_close_all(s);
	for (struct conn *c = s->conns; c; c = c->next) {
		if (c->mode == CONN_HTTP && !c->request && http_is_idle(&c->parser) && c->in.len == 0 && c->out.len == 0)
			conn_break(c);
		else if (c->mode == CONN_SOCKET)
			socket_close(c->socket, 1001, "server is stopping");
	}
	if (s->n_conns == 0)
		task_post(s, &s->stop_task);
	else
		uv_timer_start(&s->grace, on_grace_over, grace_ms, 0);
}

void server_unref(struct server *s)
{
	if (--s->n_handles > 0 || !s->freed)
		return;
	for (size_t i = 0; i < s->n_allowed_hosts; i++)
		free(s->allowed_hosts[i]);
	free(s->allowed_hosts);
	free(s->dialects);
	buf_done(&s->scratch);
	free(s);
}

static void on_handle_closed(uv_handle_t *h)
{
	server_unref(h->data);
}

void server_free(struct server *s)
{
	if (!s)
		return;
	s->freed = s->stopping = true;
	listener_close_all(s);
	while (s->conns)
		conn_kill(s->conns);
	while (s->tasks) { /* last words: on_close of sockets, close of upstreams */
		struct task *t = s->tasks;
		task_cancel(s, t);
		if (t != &s->stop_task)
			t->run(t);
	}
	while (s->requests) { /* still owed an answer by their handlers: freed when it comes */
		struct request *r = s->requests;
		DL_DELETE(s->requests, r);
		r->server = NULL;
	}
	s->spare_fd = close_fd(s->spare_fd);
	uv_close((uv_handle_t *)&s->idle, on_handle_closed);
	uv_close((uv_handle_t *)&s->timer, on_handle_closed);
	uv_close((uv_handle_t *)&s->accept_retry, on_handle_closed);
	uv_close((uv_handle_t *)&s->grace, on_handle_closed);
}
