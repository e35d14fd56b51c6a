/* One HTTP exchange over libcurl's easy interface.
 *
 * What depends on the connection alone is set once. Every exchange sets all that depends on a request, and takes it back
 * at its end, so that nothing of one request leaks into the next. */
#include "client/client.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

enum { REFUSAL_MAX = 64 * 1024, REPLY_MAX = 16 * 1024 * 1024, CONNECT_SECONDS = 10, SOCKET_BUFFER = 1024 * 1024 };

struct transfer {
	struct caisson *c;
	struct exchange *x;
};

static size_t on_bytes(char *p, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	struct exchange *x = t->x;
	long status = 0;

	n *= size;
	curl_easy_getinfo(t->c->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 200 && status < 300 && x->sink) {
		if (x->sink(x->ctx, p, n) == 0)
			return n;
		x->stopped = true;
		return 0;
	}
	if (status >= 300)
		x->reply.max = REFUSAL_MAX;
	return bytes_add(&x->reply, p, n) < 0 ? 0 : n;
}

static size_t on_room(char *p, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	ptrdiff_t got = t->x->source(t->x->ctx, p, size * n);

	if (got >= 0)
		return (size_t)got;
	t->x->stopped = true;
	return CURL_READFUNC_ABORT;
}

static int on_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
	const struct caisson *c = ctx;
	int size = SOCKET_BUFFER; /* of a unix socket the kernel gives less, which still makes for fewer and larger turns */

	(void)purpose;
	if (c->socket)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	return CURL_SOCKOPT_OK;
}

/* By libcurl's own reading of the address, so that nothing like http://127.0.0.1@elsewhere passes. */
bool url_is_loopback(const char *url)
{
	char *host = NULL;
	CURLU *u = curl_url();
	bool yes = false;

	if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK)
		yes = streq(host, "localhost") || streq(host, "[::1]") ||
		      (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host));
	curl_free(host);
	curl_url_cleanup(u);
	return yes;
}

int http_set_up(struct caisson *c)
{
	CURL *h = c->curl;
	unsigned bad = 0; /* CURLcodes: 0 is CURLE_OK */

	bad |= curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	bad |= curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	bad |= curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L); /* a sandbox named ".." must not become another path */
	bad |= curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	bad |= curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	bad |= curl_easy_setopt(h, CURLOPT_USERAGENT, "libcaisson/" CAISSON_VERSION);
	bad |= curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
	bad |= curl_easy_setopt(h, CURLOPT_SOCKOPTFUNCTION, on_socket);
	bad |= curl_easy_setopt(h, CURLOPT_SOCKOPTDATA, c);
	bad |= curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_bytes);
	bad |= curl_easy_setopt(h, CURLOPT_READFUNCTION, on_room);
	bad |= curl_easy_setopt(h, CURLOPT_BUFFERSIZE, 256L * 1024);
	bad |= curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
	if (c->socket)
		bad |= curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, c->socket);
	if (c->socket || url_is_loopback(c->base))
		bad |= curl_easy_setopt(h, CURLOPT_PROXY, ""); /* http_proxy of the environment must not see the key */
	return bad ? -1 : 0;
}

static int set_request(struct caisson *c, struct exchange *x, struct transfer *t, const char *url, struct curl_slist *headers)
{
	CURL *h = c->curl;
	unsigned bad = 0; /* CURLcodes: 0 is CURLE_OK */

	bad |= curl_easy_setopt(h, CURLOPT_URL, url);
	if (x->source) {
		bad |= curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
		bad |= curl_easy_setopt(h, CURLOPT_READDATA, t);
	} else if (x->body || streq(x->method, "POST") || streq(x->method, "PUT")) {
		bad |= curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body_len);
		bad |= curl_easy_setopt(h, CURLOPT_POSTFIELDS, x->body ? x->body : "");
	}
	bad |= curl_easy_setopt(h, CURLOPT_TIMEOUT, x->timeout_s);
	bad |= curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, x->method);
	bad |= curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	bad |= curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
	return bad ? -1 : 0;
}

/* Nothing of ours stays referenced: the exchange and its headers end here. */
static void unset_request(CURL *h)
{
	curl_easy_setopt(h, CURLOPT_UPLOAD, 0L);
	curl_easy_setopt(h, CURLOPT_POSTFIELDS, NULL);
	curl_easy_setopt(h, CURLOPT_HTTPGET, 1L);
	curl_easy_setopt(h, CURLOPT_HTTPHEADER, NULL);
	curl_easy_setopt(h, CURLOPT_READDATA, NULL);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, NULL);
}

static struct curl_slist *headers_of(const struct caisson *c, const struct exchange *x)
{
	struct curl_slist *list = NULL;
	char type[160];
	bool has_body = x->body || x->source;

	if (has_body)
		snprintf(type, sizeof type, "Content-Type: %s", x->content_type ? x->content_type : "application/json");
	const char *const lines[] = {
		has_body ? type : "Content-Type:", "Expect:", /* no waiting for 100: a refusal comes early anyway */
		c->auth ? c->auth->data : NULL,
	};
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		if (!lines[i])
			continue;
		struct curl_slist *more = curl_slist_append(list, lines[i]);
		if (!more) {
			curl_slist_free_all(list);
			return NULL;
		}
		list = more;
	}
	return list;
}

/* TLS writes without MSG_NOSIGNAL; a peer that went away must not kill the program that uses us. */
static CURLcode perform_without_sigpipe(CURL *h)
{
	sigset_t pipe, old, pending;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	bool was_pending = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &pipe, &old);
	CURLcode r = curl_easy_perform(h);
	if (!was_pending) {
		const struct timespec now = { 0 };
		sigtimedwait(&pipe, NULL, &now);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

static int error_of_curl(const struct caisson *c, const struct exchange *x, CURLcode r, struct caisson_error *e)
{
	if (x->stopped)
		return error_set(e, CAISSON_ERR_STOPPED, "stopped by the caller");
	if (r == CURLE_OUT_OF_MEMORY || (x->reply.failed && !x->reply.over))
		return error_memory(e);
	if (x->reply.over)
		return error_set(e, CAISSON_ERR_TOO_LARGE, "the answer is longer than %zu bytes", x->reply.max);
	if (r == CURLE_COULDNT_CONNECT || r == CURLE_COULDNT_RESOLVE_HOST)
		return error_set(e, CAISSON_ERR_CONNECT, "no caisson server at %s: start one with `caisson serve`, or set CAISSON_URL", c->url);
	if (r == CURLE_OPERATION_TIMEDOUT)
		return error_set(e, CAISSON_ERR_CONNECT, "the server at %s does not answer", c->url);
	return error_set(e, CAISSON_ERR_CONNECT, "the connection to %s broke: %s", c->url, curl_easy_strerror(r));
}

int exchange_perform(struct caisson *c, struct exchange *x, struct caisson_error *e)
{
	auto_bytes struct bytes url = { .max = 1 << 20 };
	struct transfer t = { c, x };

	x->reply.max = x->reply_max ? x->reply_max : REPLY_MAX;
	bytes_addz(&url, c->base);
	if (bytes_addz(&url, x->path) < 0)
		return url.over ? error_set(e, CAISSON_ERR_TOO_LARGE, "the request's path is too long") : error_memory(e);
	struct curl_slist *headers = headers_of(c, x);
	if (!headers || bytes_add(&x->reply, "", 0) < 0 || set_request(c, x, &t, url.p, headers) < 0) {
		unset_request(c->curl);
		curl_slist_free_all(headers);
		return error_memory(e);
	}
	CURLcode r = perform_without_sigpipe(c->curl);
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &x->status);
	unset_request(c->curl);
	curl_slist_free_all(headers);
	/* A refusal may come, and the connection end, while we are still sending: the refusal is the better answer. */
	if (x->status >= 300 && !x->stopped)
		return error_of_reply(e, x->status, x->reply.p, x->reply.n);
	if (r != CURLE_OK)
		return error_of_curl(c, x, r, e);
	return 0;
}

void exchange_done(struct exchange *x)
{
	bytes_done(&x->reply);
}

int json_exchange(struct caisson *c, const char *method, const char *path, json_t *take_body, json_t **ret, struct caisson_error *e)
{
	auto_json json_t *body = take_body;
	auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	auto_exchange struct exchange x = { .method = method, .path = path, .body = text, .body_len = text ? strlen(text) : 0 };

	if ((body && !text) || !path)
		return error_memory(e);
	if (exchange_perform(c, &x, e) < 0)
		return -1;
	if (!ret)
		return 0;
	json_error_t why;
	json_t *o = json_loadb(x.reply.p, x.reply.n, JSON_ALLOW_NUL, &why);
	if (!o)
		return error_set(e, CAISSON_ERR_PROTOCOL, "the answer of %s is not JSON: %s", c->url, why.text);
	*ret = o;
	return 0;
}

int caisson_request(struct caisson *c, const char *method, const char *path, const char *body, char **ret_json, struct caisson_error *e)
{
	auto_exchange struct exchange x = { .method = method, .path = path, .body = body, .body_len = body ? strlen(body) : 0,
		                            .reply_max = (size_t)1 << 30 };

	if (strncmp(path, "/", 1) != 0 || strpbrk(path, " \r\n"))
		return error_set(e, CAISSON_ERR_INVALID, "a path begins with / and holds no blank");
	if (exchange_perform(c, &x, e) < 0)
		return -1;
	if (ret_json)
		*ret_json = take_ptr(&x.reply.p);
	return 0;
}

int caisson_stream(struct caisson *c, const char *path, int (*sink)(void *ctx, const void *bytes, size_t n), void *ctx, struct caisson_error *e)
{
	auto_exchange struct exchange x = { .method = "GET", .path = path, .sink = sink, .ctx = ctx };

	if (strncmp(path, "/", 1) != 0 || strpbrk(path, " \r\n"))
		return error_set(e, CAISSON_ERR_INVALID, "a path begins with / and holds no blank");
	int rc = exchange_perform(c, &x, e);
	return x.stopped ? 0 : rc;
}
