/* `caisson mcp`: MCP over stdin and stdout, one message a line, carried to the server's /mcp.
 *
 * Theory of operation. The session at the server has an id of our choice, so nothing but bodies has to be carried. Every request has a
 * thread and a connection of its own, since one that takes long must not hold up the next, nor the notice that cancels it;
 * notifications go in order, between them. When stdin ends the session is deleted, and its sandboxes with it: with no thread left
 * waiting, since what still ran in them has ended. Without a server one is run for as long as this takes. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/default_image.h"
#include "cli/embed.h"
#include "wire/jsonrpc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 16 << 20, THREADS_MAX = 64 };

struct bridge {
	struct caisson *c;
	char path[96];
	pthread_mutex_t lock; /* of stdout and the fields below */
	pthread_cond_t left;
	unsigned threads;
};

struct job {
	struct bridge *b;
	struct caisson *c;
	char *text;
};

/* --- stdout --- */

static void emit(struct bridge *b, const char *line)
{
	pthread_mutex_lock(&b->lock);
	for (const char *p = line; *p;) { /* the server writes a message on one line; whatever comes must stay one */
		size_t n = strcspn(p, "\r\n");
		(void)fwrite(p, 1, n, stdout);
		p += n + (p[n] != '\0');
	}
	(void)fputc('\n', stdout);
	(void)fflush(stdout);
	pthread_mutex_unlock(&b->lock);
}

static void emit_error(struct bridge *b, const json_t *id, int code, const char *message)
{
	auto_buf struct buf out;

	buf_init(&out, 1 << 16);
	jsonrpc_write_error(&out, id, code, message, NULL);
	emit(b, out.data);
}

/* --- one message --- */

/* What the server refuses at the level of HTTP has lost the message's id on its way through the library: said with it here. */
static void carry(struct bridge *b, struct caisson *c, const char *text)
{
	auto_free char *answer = NULL;
	struct caisson_error e;
	struct jsonrpc m;
	struct err why;

	if (caisson_request(c, "POST", b->path, text, &answer, &e) == 0) {
		if (answer && *answer)
			emit(b, answer);
		return;
	}
	if (jsonrpc_read(str_of(text), &m, &why) == JSONRPC_REQUEST)
		emit_error(b, m.id, JSONRPC_INTERNAL, e.http_status == 404 ? "there is no such session (any more): begin with initialize" : e.message);
	else
		cli_warn("%s", e.message);
	jsonrpc_done(&m);
}

static void *work(void *ctx)
{
	struct job *j = ctx;
	struct bridge *b = j->b;

	carry(b, j->c, j->text);
	caisson_close(j->c);
	free(j->text);
	free(j);
	pthread_mutex_lock(&b->lock);
	b->threads--;
	pthread_cond_signal(&b->left);
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* false: do it on the spot. */
static bool in_thread(struct bridge *b, const char *text)
{
	struct job *j = xcalloc(1, sizeof *j);
	struct caisson_error e;
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;

	*j = (struct job){ .b = b, .text = xstrdup(text) };
	if (caisson_clone(b->c, &j->c, &e) < 0) {
		free(j->text);
		free(j);
		return false;
	}
	pthread_mutex_lock(&b->lock);
	while (b->threads >= THREADS_MAX)
		pthread_cond_wait(&b->left, &b->lock);
	b->threads++;
	pthread_mutex_unlock(&b->lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all); /* a signal is to end the read() of the first thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&thread, &attr, work, j);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (rc != 0)
		work(j); /* slower, and done */
	return true;
}

static void take_line(struct bridge *b, const char *line)
{
	struct jsonrpc m;
	struct err e;

	switch (jsonrpc_read(str_of(line), &m, &e)) {
	case JSONRPC_BAD:
		emit_error(b, m.id, m.code, e.message);
		break;
	case JSONRPC_REQUEST:
		/* The session begins before anything else in it. */
		if (streq(m.method, "initialize") || !in_thread(b, line))
			carry(b, b->c, line);
		break;
	case JSONRPC_NOTIFICATION:
	case JSONRPC_RESPONSE:
		carry(b, b->c, line);
		break;
	}
	jsonrpc_done(&m);
}

/* --- stdin --- */

/* Until it ends, or a signal does. A line over the bound is dropped to its end and said. */
static void read_lines(struct bridge *b)
{
	auto_buf struct buf in;
	bool dropping = false;

	buf_init(&in, LINE_MAX_BYTES);
	for (;;) {
		char *newline;
		while (in.len && (newline = memchr(in.data, '\n', in.len))) {
			*newline = '\0';
			size_t n = (size_t)(newline - in.data) + 1;
			if (dropping)
				emit_error(b, NULL, JSONRPC_PARSE_ERROR, "a message may have 16 MiB");
			else if (strspn(in.data, " \t\r") < n - 1)
				take_line(b, in.data);
			dropping = false;
			buf_consume(&in, n);
		}
		if (in.len > LINE_MAX_BYTES - (64 << 10)) {
			dropping = true;
			buf_reset(&in);
		}
		char *room = buf_reserve(&in, 64 << 10);
		ssize_t n = read(STDIN_FILENO, room, 64 << 10);
		if (n <= 0)
			return;
		buf_grew(&in, (size_t)n);
	}
}

static void on_signal(int signo)
{
	(void)signo; /* read() returns */
}

static int serve(struct caisson *c)
{
	struct bridge b = { .c = c, .lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER };
	const struct sigaction end = { .sa_handler = on_signal };
	struct caisson_error e;
	char id[33];

	random_hex(id, 16);
	snprintf(b.path, sizeof b.path, "/mcp/sessions/%s", id);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGHUP, &end, NULL);
	read_lines(&b);
	if (caisson_request(c, "DELETE", b.path, NULL, NULL, &e) < 0 && e.kind != CAISSON_ERR_NOT_FOUND && e.http_status != 404)
		cli_warn("the session was not ended: %s", e.message);
	pthread_mutex_lock(&b.lock);
	while (b.threads > 0)
		pthread_cond_wait(&b.left, &b.lock);
	pthread_mutex_unlock(&b.lock);
	return 0;
}

static int without_server(void)
{
	struct embedded server;
	struct caisson *c;
	struct caisson_error e;

	if (geteuid() != 0)
		return cli_fail("no server runs here, and to run one takes root: start `sudo caisson serve`, and set CAISSON_URL and CAISSON_API_KEY");
	int r = default_image_ensure(NULL);
	if (r)
		return r;
	r = embed_start(NULL, &server);
	if (r)
		return r;
	const struct caisson_connect_options o = { .url = server.url, .key = server.key };
	if (caisson_connect(&o, &c, &e) < 0) {
		r = cli_fail_error(&e);
	} else {
		r = serve(c);
		caisson_close(c);
	}
	embed_stop(&server);
	return r;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	auto_caisson struct caisson *c = NULL;
	struct caisson_error e;
	const char *url = getenv("CAISSON_URL");
	bool named = cli->url || (!cli->data && url && *url);

	args_init(&a, cli, argc, argv, false);
	while (args_next(&a) > 0)
		;
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	const struct caisson_connect_options o = { .url = cli->url, .data = cli->data };
	if (caisson_connect(&o, &c, &e) == 0)
		return serve(c);
	return e.kind == CAISSON_ERR_CONNECT && !named ? without_server() : cli_fail_error(&e);
}

const struct command command_mcp = {
	.name = "mcp",
	.synopsis = "",
	.summary = "Give an agent sandboxes as MCP tools, over stdin and stdout",
	.help = "For the configuration of an MCP client: the command is `caisson`, its argument `mcp`. The tools work in sandboxes of the server\n"
		"found as usual (CAISSON_URL, CAISSON_API_KEY, --data); without one a server is run for as long as this takes, which needs root.\n"
		"When stdin ends, the sandboxes made in this session are deleted. The same tools are at http://SERVER/mcp.\n",
	.run = run,
};
