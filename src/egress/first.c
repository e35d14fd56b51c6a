/* What the first bytes of a connection are for, and what every further request of plain HTTP, and a second ClientHello, is for.
 *
 * Two policies ask. Under one of names (by_name) they must name one of the names that the address was given for; whatever hides or
 * lacks a name is refused. Under an open one with names on its deny list they must not name one of those. Where the requests to some hosts
 * are read (rules about methods), whatever is TLS or HTTP must name a host that the address was given for, too, or it could be one of those
 * under no name or another one; and what is neither is refused by an address that was given for one of them. */
#include "egress/edge_int.h"

#include <errno.h>

void first_done(struct flow *f)
{
	if (f->http)
		http_done(f->http);
	free(take_ptr(&f->http));
	if (f->tls)
		hello_after_done(f->tls);
	free(take_ptr(&f->tls));
}

static enum first refuse(const char **ret_reason, const char *reason)
{
	*ret_reason = reason;
	return FIRST_REFUSE;
}

static bool must_name(const struct flow *f)
{
	return f->by_name || (reads_port(f->box, f->port) && (f->box->policy.mode == NETWORK_PUBLIC || reads_addr(f->box, &f->addr, f->port)));
}

static enum first judge_name(struct flow *f, struct str sent, const char **ret_reason)
{
	char name[POLICY_NAME_MAX + 1];
	struct addr literal;

	if (addr_parse(sent, &literal) == 0) /* an address asks for no name */
		return must_name(f) ? refuse(ret_reason, "an address instead of a name") : FIRST_PASS;
	/* A dot at the end is no part of a name in TLS and HTTP, and servers differ about it. */
	if (sent.n == 0 || sent.p[sent.n - 1] == '.' || name_canonical(sent, name) < 0)
		return refuse(ret_reason, "not a name");
	if (policy_denies_name(&f->box->policy, name, f->port, POLICY_TCP))
		return refuse(ret_reason, "a name of the deny list");
	if (asks_for_name(f->box, name))
		return refuse(ret_reason, "a name that is asked for, and was not looked up");
	if (f->by_name ? !pin_find(f->box, &f->addr, f->port, POLICY_TCP, name, NULL) : must_name(f) && !pin_of_name(f->box, &f->addr, name))
		return refuse(ret_reason, "another name than the one that was looked up and allowed");
	free(f->name);
	f->name = xstrdup(name);
	return FIRST_PASS;
}

/* Is it the names that its bytes are looked at for, or only whether it goes to the opener? */
static bool names_matter(const struct flow *f)
{
	return f->by_name || f->box->asked.n_allow || reads_port(f->box, f->port) || policy_judge_address(&f->box->policy, &f->box->edge->net, &f->addr, f->port, POLICY_TCP).look;
}

static enum first judge_hello(struct flow *f, const struct hello *h, const char **ret_reason)
{
	if (h->encrypted && names_matter(f))
		return refuse(ret_reason, "TLS that hides the name (ECH)");
	if (!h->name.p)
		return must_name(f) ? refuse(ret_reason, "TLS without a name (SNI)") : FIRST_PASS;
	enum first v = judge_name(f, h->name, ret_reason);
	f->to_open = v == FIRST_PASS && f->name && opens_name(f->box, f->name, f->port);
	return v;
}

/* The first hello may be followed by another one if the server asks for it. The opener follows its own. */
static enum first begin_tls(struct flow *f, const struct hello *h, const char **ret_reason)
{
	enum first v = judge_hello(f, h, ret_reason);

	first_done(f);
	if (v == FIRST_PASS && !f->to_open && names_matter(f)) {
		f->tls = xcalloc(1, sizeof *f->tls);
		hello_after_init(f->tls, h);
	}
	return v;
}

static enum first follow_tls(struct flow *f, const uint8_t *p, size_t n, const char **ret_reason)
{
	struct hello h;
	enum hello_verdict is = hello_after_client(f->tls, p, n, f->box->edge->room, &h);

	if (is == HELLO_MORE)
		return FIRST_PASS;
	if (is != HELLO_DONE)
		return refuse(ret_reason, "TLS that could be read in two ways");
	auto_free char *before = f->name ? xstrdup(f->name) : NULL;
	enum first v = judge_hello(f, &h, ret_reason);
	f->to_open = false;
	if (v == FIRST_PASS && (f->name == NULL) != (before == NULL))
		v = FIRST_REFUSE;
	if (v == FIRST_PASS && before && !streq(before, f->name))
		v = FIRST_REFUSE;
	first_done(f);
	return v == FIRST_REFUSE && !*ret_reason ? refuse(ret_reason, "another name in a second hello (TLS)") : v;
}

/* "name:port", "[v6]:port"; what is neither stays as it is, and is no name. */
static struct str without_port(struct str host)
{
	const char *close = host.n && host.p[0] == '[' ? memchr(host.p, ']', host.n) : NULL;
	const char *end = host.p + host.n, *colon = close ? close + 1 : memchr(host.p, ':', host.n);
	struct addr a;

	if (!colon || (colon < end && *colon != ':') || end - colon > 6)
		return host;
	for (const char *digit = colon + 1; digit < end; digit++)
		if (*digit < '0' || *digit > '9')
			return host;
	if (!close)
		return (struct str){ host.p, (size_t)(colon - host.p) };
	struct str inner = { host.p + 1, (size_t)(close - host.p) - 1 };
	return addr_parse(inner, &a) == 0 && a.family == 6 ? inner : host;
}

static enum first judge_request(struct flow *f, const struct http_head *h, const char **ret_reason)
{
	if (streq(h->method, "CONNECT"))
		return refuse(ret_reason, "CONNECT would lead somewhere else");
	if (!h->host.p || h->host.n == 0)
		return must_name(f) ? refuse(ret_reason, "a request without Host") : FIRST_PASS;
	struct str host = http_get(h, "Host");
	if (host.p && !str_eq_nocase(host, h->host))
		return refuse(ret_reason, "a request with two hosts");
	if (http_get(h, "Upgrade").p) {
		/* Behind an upgrade the bytes mean nothing to us any more. Only the first request may ask, so that it is clear whose
		 * answer the server's first bytes are. */
		if (http_list_has(h, "Upgrade", "h2c") || !f->first_request)
			return refuse(ret_reason, "an upgrade that could not be followed");
		f->hold = true;
	}
	f->first_request = false;
	return judge_name(f, without_port(h->host), ret_reason);
}

enum first first_follow(struct flow *f, const uint8_t *p, size_t n, const char **ret_reason)
{
	struct str in = { (const char *)p, n }, body;

	if (f->tls)
		return follow_tls(f, p, n, ret_reason);
	for (;;) {
		enum first v;
		switch (http_feed(f->http, &in, &body)) {
		case HTTP_MORE:
			return FIRST_PASS;
		case HTTP_HEAD:
			v = judge_request(f, f->http->head, ret_reason);
			if (v == FIRST_PASS && f->name && reads_name(f->box, f->name, f->port))
				v = refuse(ret_reason, "a host whose requests are read, behind one whose are not");
			if (v != FIRST_PASS)
				return v;
			break;
		case HTTP_BODY:
			break;
		case HTTP_END:
			http_next(f->http);
			if (f->hold && in.n)
				return refuse(ret_reason, "bytes behind an upgrade that nobody has answered");
			break;
		case HTTP_ERROR:
			return refuse(ret_reason, f->http->error);
		}
	}
}

void first_server_says(struct flow *f, const uint8_t *p, size_t n)
{
	static const char switched[] = "HTTP/1.1 101";

	if (f->tls && !hello_after_server(f->tls, p, n))
		first_done(f);
	if (!f->hold)
		return;
	f->hold = false;
	if (n >= sizeof switched - 1 && memcmp(p, switched, sizeof switched - 1) == 0)
		first_done(f);
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

/* Is what the parser refuses another protocol, or something that servers could read as HTTP all the same? By its first line: one that says HTTP,
 * or that a path stands in behind a word. What is no text ends it, so that nobody waits for more of a protocol that has no lines. */
static enum first judge_other(const uint8_t *p, size_t n, const char *lenient, const char **ret_reason)
{
	enum { METHOD_MAX = 32, LINE_MAX_HTTP = 8192 };
	size_t at = 0, end, word;

	while (at < n && (p[at] == '\r' || p[at] == '\n' || is_blank(p[at])))
		at++;
	for (end = at; end < n && (p[end] >= 0x20 || p[end] == '\t') && p[end] != 0x7f; end++)
		if (end - at >= 4 && p[end] == '/' && str_eq_nocase((struct str){ (const char *)p + end - 4, 4 }, STR("http")))
			return refuse(ret_reason, lenient);
	for (word = at; word < end && !is_blank(p[word]); word++)
		;
	size_t next = word;
	while (next < end && is_blank(p[next]))
		next++;
	if (word > at && next > word && next < end && p[next] == '/')
		return refuse(ret_reason, lenient);
	/* Longer ones no server takes for a method, or for a request's first line. */
	bool may_be = word == end ? end - at <= METHOD_MAX : end - at <= LINE_MAX_HTTP;
	return end == n && may_be ? FIRST_WAIT : FIRST_PASS;
}

/* It is refused in any case; HTTP that is none by our parser's reason. */
static enum first refuse_other(const uint8_t *p, size_t n, const char *lenient, const char *other, const char **ret_reason)
{
	return judge_other(p, n, lenient, ret_reason) == FIRST_REFUSE ? FIRST_REFUSE : refuse(ret_reason, other);
}

/* Does it begin as HTTP does? Without taking anything: the same bytes are followed when they are sent on. */
static enum first judge_http(struct flow *f, const uint8_t *p, size_t n, const char **ret_reason)
{
	struct http_parser probe;
	struct str in = { (const char *)p, n }, body;
	enum first v = FIRST_WAIT;

	http_init(&probe, HTTP_REQUEST);
	enum http_event ev = http_feed(&probe, &in, &body);
	if (ev == HTTP_ERROR && reads_addr(f->box, &f->addr, f->port))
		v = refuse_other(p, n, probe.error, "neither TLS nor HTTP, to a host whose requests are read", ret_reason);
	else if (ev == HTTP_ERROR && f->by_name)
		v = refuse_other(p, n, probe.error, "neither TLS nor HTTP; a rule may end in /raw", ret_reason);
	else if (ev == HTTP_ERROR)
		v = judge_other(p, n, probe.error, ret_reason);
	else if (ev == HTTP_HEAD)
		v = FIRST_PASS;
	if (ev == HTTP_HEAD) {
		f->http = xcalloc(1, sizeof *f->http);
		http_init(f->http, HTTP_REQUEST);
		f->first_request = true;
		v = judge_request(f, probe.head, ret_reason);
		f->first_request = true; /* it comes again when it is followed */
		f->hold = false;
		f->plain = f->to_open = v == FIRST_PASS && f->name && reads_name(f->box, f->name, f->port);
		if (f->to_open) /* who follows it is the opener */
			first_done(f);
	}
	http_done(&probe);
	return v;
}

enum first first_judge(struct flow *f, const uint8_t *p, size_t n, const char **ret_reason)
{
	struct hello h;

	if (n == 0)
		return FIRST_WAIT;
	switch (hello_parse(p, n, f->box->edge->room, &h)) {
	case HELLO_MORE:
		return n < FIRST_MAX ? FIRST_WAIT : refuse(ret_reason, "first bytes without end");
	case HELLO_DONE:
		return begin_tls(f, &h, ret_reason);
	case HELLO_BAD:
		return refuse(ret_reason, "TLS that could be read in two ways");
	case HELLO_NOT:
		if (!names_matter(f))
			return FIRST_PASS;
		break;
	}
	enum first v = judge_http(f, p, n, ret_reason);
	return v == FIRST_WAIT && n >= FIRST_MAX ? refuse(ret_reason, "first bytes without end") : v;
}
