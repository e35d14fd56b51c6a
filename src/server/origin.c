/* A server on loopback can be reached by every web page the user opens. Two tricks are stopped here, before any route:
 *
 * - DNS rebinding: a page's own name is made to resolve to 127.0.0.1, so its requests are same-origin to the browser. They
 *   carry that name as Host: on loopback only address literals, localhost and names allowed on purpose are served.
 * - Cross-site requests: a page posts to http://127.0.0.1. Browsers put Origin on whatever is not a plain GET: if that
 *   is another host than the one asked, the request is refused; WebSockets likewise.
 *
 * Neither replaces the key. The unix socket is out of a browser's reach. */
#include "server/internal.h"

#include <arpa/inet.h>
#include <strings.h>

struct str host_without_port(struct str host)
{
	if (host.n && host.p[0] == '[') {
		const char *end = memchr(host.p, ']', host.n);
		return end ? (struct str){ host.p, (size_t)(end - host.p) + 1 } : host;
	}
	const char *colon = host.n ? memchr(host.p, ':', host.n) : NULL;
	return colon ? (struct str){ host.p, (size_t)(colon - host.p) } : host;
}

static bool is_address(struct str name)
{
	char text[64];
	unsigned char addr[16];
	bool v6 = name.n > 2 && name.p[0] == '[' && name.p[name.n - 1] == ']';

	if (v6)
		name = (struct str){ name.p + 1, name.n - 2 };
	if (name.n >= sizeof text)
		return false;
	memcpy(text, name.p, name.n);
	text[name.n] = '\0';
	return inet_pton(v6 ? AF_INET6 : AF_INET, text, addr) == 1;
}

static bool is_allowed(const struct server *s, struct str name)
{
	for (size_t i = 0; i < s->n_allowed_hosts; i++)
		if (streq(s->allowed_hosts[i], "*") || str_eq_nocase(name, str_of(s->allowed_hosts[i])))
			return true;
	return false;
}

static bool host_ok(const struct request *r)
{
	struct str name = host_without_port(r->head->host);

	if (r->head->minor == 0 && name.n == 0) /* no browser speaks 1.0 */
		return true;
	return is_address(name) || str_eq_nocase(name, STR("localhost")) || is_allowed(r->server, name);
}

static bool origin_ok(const struct request *r, struct str origin)
{
	const char *at = memmem(origin.p, origin.n, "://", 3);

	if (!at)
		return false; /* "null": a sandboxed frame, a file */
	struct str host = { at + 3, origin.n - (size_t)(at + 3 - origin.p) };
	return str_eq_nocase(host, r->head->host) || is_allowed(r->server, host_without_port(host));
}

bool origin_check(const struct request *r, int *ret_status, struct err *e)
{
	const char *m = r->head->method;
	bool reads = streq(m, "GET") || streq(m, "HEAD") || streq(m, "OPTIONS");
	struct str origin = http_get(r->head, "Origin");

	if (r->local)
		return true;
	if (r->conn->check_host && !host_ok(r)) {
		*ret_status = 421;
		err_set(e, ERR_DENIED, 0,
			"this server does not answer to the host name \"%.*s\"; use its address or localhost, or allow the name in its configuration",
			(int)MIN(r->head->host.n, (size_t)100), r->head->host.p ? r->head->host.p : "");
		return false;
	}
	if (origin.p && (!reads || r->ws_asked) && !origin_ok(r, origin)) {
		*ret_status = 403;
		err_set(e, ERR_DENIED, 0, "requests from pages of another origin are refused");
		return false;
	}
	return true;
}
