/* A command's output as a WebSocket stream: its bytes with a three-byte marker at each change between stdout and stderr,
 * from the beginning and then live; closed when the command has ended. The reader's pace is the source's. */
#include "dialect/daytona/internal.h"

struct log_stream {
	struct socket *socket;
	struct follower *follower;
	int last; /* stream of the last marker */
};

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	(void)offset;
	struct log_stream *l = ctx;
	if (l->last == stream) {
		socket_send(l->socket, false, bytes);
	} else {
		/* In one message: SDKs lose a marker that comes in a message of its own. */
		auto_buf struct buf b;
		buf_init(&b, bytes.n + 3);
		buf_add(&b, stream == 2 ? MARK_STDERR : MARK_STDOUT, 3);
		buf_add(&b, bytes.p, bytes.n);
		socket_send(l->socket, false, buf_str(&b));
		l->last = stream;
	}
	if (!socket_room(l->socket) && l->follower)
		follower_pause(l->follower);
}

static void on_end(void *ctx, const struct run_view *r)
{
	struct log_stream *l = ctx;
	/* SDKs take any other code than 1000 for a failure of the stream. */
	if (r->state == RUN_LOST)
		socket_close(l->socket, 1011, "the command was lost");
	else
		socket_close(l->socket, 1000, "");
}

static void on_room(void *ctx)
{
	struct log_stream *l = ctx;
	if (l->follower)
		follower_resume(l->follower);
}

static void on_close(void *ctx, int code)
{
	(void)code;
	struct log_stream *l = ctx;
	if (l->follower)
		follower_free(l->follower);
	free(l);
}

static struct log_stream *accept_stream(struct request *r)
{
	static const struct socket_events events = { .on_room = on_room, .on_close = on_close };
	struct log_stream *l = xcalloc(1, sizeof(*l));
	/* A client that offers protocols (a browser's way to pass its version) must see one selected. */
	struct str offered = req_protocol_at(r, 0);
	auto_free char *protocol = offered.p ? xstrndup(offered.p, offered.n) : NULL;
	l->socket = req_accept_websocket(r, protocol, 0, &events, l);
	if (l->socket)
		return l;
	free(l);
	return NULL;
}

void log_stream(struct daytona *d, struct request *r, const char *run)
{
	static const struct follower_events events = { .on_output = on_output, .on_end = on_end };
	struct err e = { 0 };
	struct caller caller = *caller_of(r);
	auto_free char *ref = xstrdup(req_path_arg(r, "id")), *id = xstrdup(run);
	struct log_stream *l = accept_stream(r);
	if (!l)
		return;
	l->follower = api_run_follow(d->api, &caller, ref, id, 0, 0, &events, l, &e);
	if (!l->follower)
		socket_close(l->socket, 1011, "the command is gone");
}

void log_stream_empty(struct daytona *d, struct request *r)
{
	(void)d;
	struct log_stream *l = accept_stream(r);
	if (l)
		socket_close(l->socket, 1000, "");
}
