/* A server with the Daytona dialect over the api in memory, in a thread of its own, and a plain client for it. Part of a test
 * program: included once, after cmocka.h. */
#ifndef CAISSON_TESTS_DAYTONA_SERVER_H
#define CAISSON_TESTS_DAYTONA_SERVER_H

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "daytona-fake.h"
#include "dialect/daytona/daytona.h"

static uv_loop_t loop;
static uv_async_t wake;
static pthread_t thread;
static struct server *server;
static struct api *api;
static struct daytona *dialect;
static uint16_t port;

/* --- the server, in a thread of its own --- */

static void *serve(void *arg)
{
	uv_run(&loop, UV_RUN_DEFAULT);
	return arg;
}

static void stopped(void *ctx)
{
	(void)ctx;
	daytona_free(dialect);
	server_free(server);
}

static void on_wake(uv_async_t *w)
{
	uv_close((uv_handle_t *)w, NULL);
	server_stop(server, 200, stopped, NULL);
}

static const struct daytona_options *options;

static int setup(void **state)
{
	struct err e = { 0 };
	(void)state;
	uv_loop_init(&loop);
	uv_async_init(&loop, &wake, on_wake);
	server = server_new(&loop);
	api = fake_new(&loop);
	dialect = daytona_new(&loop, api, server, options, &e);
	if (!dialect || server_listen_tcp(server, "127.0.0.1:0", &port, &e) < 0)
		return -1;
	server_start(server);
	return pthread_create(&thread, NULL, serve, NULL);
}

static int teardown(void **state)
{
	(void)state;
	uv_async_send(&wake);
	pthread_join(thread, NULL);
	size_t left = fake_pending(api);
	int rc = uv_loop_close(&loop);
	fake_free(api);
	if (left || rc)
		print_error("left: %zu operations, loop: %d\n", left, rc);
	return left || rc ? -1 : 0;
}

/* --- a client --- */

static int dial(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval limit = { .tv_sec = 10 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static void send_all(int fd, const void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
		if (k <= 0)
			return; /* an early answer may close: it is read next */
		at += (size_t)k;
	}
}

struct reply {
	int status;
	struct buf head, body;
	json_t *json;
};
static struct reply last;

static void dechunk(struct buf *to, struct str in)
{
	while (in.n) {
		char *end;
		size_t n = strtoul(in.p, &end, 16);
		const char *nl = memchr(in.p, '\n', in.n);
		assert_non_null(nl);
		in.n -= (size_t)(nl + 1 - in.p);
		in.p = nl + 1;
		if (n == 0)
			return;
		assert_true(in.n >= n + 2);
		buf_add(to, in.p, n);
		in.p += n + 2;
		in.n -= n + 2;
	}
	fail_msg("no last chunk");
}

static void read_reply(int fd)
{
	struct buf all;
	char chunk[65536];
	ssize_t n;
	buf_init(&all, 128 << 20);
	while ((n = recv(fd, chunk, sizeof(chunk), 0)) > 0)
		buf_add(&all, chunk, (size_t)n);
	buf_done(&last.head);
	buf_done(&last.body);
	json_decref(last.json);
	last.json = NULL;
	buf_init(&last.head, 1 << 20);
	buf_init(&last.body, 128 << 20);
	char *end = all.len ? memmem(all.data, all.len, "\r\n\r\n", 4) : NULL;
	assert_non_null(end);
	buf_add(&last.head, all.data, (size_t)(end - all.data) + 2);
	struct str rest = { end + 4, all.len - (size_t)(end + 4 - all.data) };
	if (strcasestr(last.head.data, "\r\ntransfer-encoding: chunked"))
		dechunk(&last.body, rest);
	else
		buf_add(&last.body, rest.p, rest.n);
	last.status = atoi(last.head.data + 9);
	last.json = last.body.len ? json_loadb(last.body.data, last.body.len, JSON_DECODE_ANY, NULL) : NULL;
	buf_done(&all);
}

#define KEY_HEADER "Authorization: Bearer " FAKE_KEY "\r\n"

static void ask_raw(const char *method, const char *target, const char *headers, const void *body, size_t n)
{
	struct buf b;
	int fd = dial();
	buf_init(&b, 64 << 20);
	buf_addf(&b, "%s %s HTTP/1.1\r\nConnection: close\r\n%s", method, target, headers);
	if (!strcasestr(headers, "host:"))
		buf_addf(&b, "Host: 127.0.0.1:%u\r\n", port);
	if (body)
		buf_addf(&b, "Content-Length: %zu\r\n", n);
	buf_addz(&b, "\r\n");
	buf_add(&b, body, n);
	send_all(fd, b.data, b.len);
	buf_done(&b);
	read_reply(fd);
	close(fd);
}

/* With the key; the body may be NULL. Returns the status. */
static int ask(const char *method, const char *path, const char *body)
{
	char target[4096];
	snprintf(target, sizeof(target), "/daytona%s", path);
	ask_raw(method, target, KEY_HEADER, body, body ? strlen(body) : 0);
	return last.status;
}

static const char *text(const char *key)
{
	const char *s = json_string_value(json_object_get(last.json, key));
	return s ? s : "(none)";
}
static long long number(const char *key)
{
	json_t *v = json_object_get(last.json, key);
	return json_is_integer(v) ? json_integer_value(v) : -12345;
}

static char box[37], tool[64];
static void make_box(void)
{
	assert_int_equal(ask("POST", "/sandbox", "{\"env\":{\"A\":\"1\"},\"labels\":{\"code-toolbox-language\":\"python\"}}"), 200);
	snprintf(box, sizeof(box), "%s", text("id"));
	snprintf(tool, sizeof(tool), "/toolbox/%s", box);
}

static int in_box(const char *method, const char *path, const char *body)
{
	char target[2048];
	snprintf(target, sizeof(target), "%s%s", tool, path);
	return ask(method, target, body);
}

#endif
