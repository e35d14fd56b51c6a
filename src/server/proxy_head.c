/* Heads are written anew from the parsed fields, never copied: what belongs to one hop stays on it, and how a body is framed
 * is decided once, by us. */
#include "server/internal.h"

static bool named_by_connection(const struct http_head *h, struct str name)
{
	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_eq_nocase(h->fields[i].name, STR("Connection")))
			continue;
		struct str rest = h->fields[i].value, item;
		while (http_list_next(&rest, &item))
			if (str_eq_nocase(item, name))
				return true;
	}
	return false;
}

static bool in_list(struct str name, const char *const *list)
{
	for (; list && *list; list++)
		if (str_eq_nocase(name, str_of(*list)))
			return true;
	return false;
}

static bool is_hop_by_hop(const struct http_head *h, struct str name)
{
	static const char *const hop[] = {
		"Connection", "Keep-Alive",	   "Proxy-Connection", "TE",
		"Trailer",    "Transfer-Encoding", "Upgrade",	       "Content-Length", /* framing: written anew */
		NULL,
	};

	return in_list(name, hop) || named_by_connection(h, name);
}

static bool str_in_list_exact(struct str name, const char *const *list)
{
	for (; list && *list; list++)
		if (str_eqz(name, *list))
			return true;
	return false;
}

/* "a=1; ours=2; b=3" without what is ours. */
static void add_cookies(struct buf *to, struct str value, const char *const *drop)
{
	size_t start = to->len;
	bool any = false;

	buf_addz(to, "Cookie: ");
	while (value.n) {
		const char *end = memchr(value.p, ';', value.n);
		struct str pair = { value.p, end ? (size_t)(end - value.p) : value.n };
		value.p += MIN(pair.n + 1, value.n);
		value.n -= MIN(pair.n + 1, value.n);
		pair = http_trim(pair);
		const char *eq = pair.n ? memchr(pair.p, '=', pair.n) : NULL;
		struct str name = http_trim((struct str){ pair.p, eq ? (size_t)(eq - pair.p) : pair.n });
		if (pair.n == 0 || str_in_list_exact(name, drop))
			continue;
		buf_addz(to, any ? "; " : "");
		buf_add(to, pair.p, pair.n);
		any = true;
	}
	buf_addz(to, "\r\n");
	if (!any) { /* nothing left: no field */
		to->len = start;
		to->data[start] = '\0';
	}
}

static struct str without_line_breaks(const char *z)
{
	size_t n = 0;

	while (z && (unsigned char)z[n] > 0x20 && z[n] != 0x7f)
		n++;
	return (struct str){ z, n };
}

void proxy_write_request(struct buf *to, const struct request *r, const struct proxy_options *o, bool upgrade)
{
	const struct http_head *h = r->head;
	struct str path = without_line_breaks(o->path), host = without_line_breaks(o->host);

	buf_addf(to, "%s %.*s HTTP/1.1\r\nHost: %.*s\r\n", h->method, (int)path.n, path.p ? path.p : "", (int)host.n, host.p ? host.p : "");
	for (size_t i = 0; i < h->n_fields; i++) {
		struct str name = h->fields[i].name, value = h->fields[i].value;
		if (is_hop_by_hop(h, name) || str_eq_nocase(name, STR("Host")) || str_eq_nocase(name, STR("Expect")) ||
		    in_list(name, o->drop_headers) || (o->is_secret && o->is_secret(value)))
			continue;
		if (str_eq_nocase(name, STR("Cookie")) && o->drop_cookies)
			add_cookies(to, value, o->drop_cookies);
		else
			reply_head_add(to, name, value);
	}
	if (h->length > 0 || (h->length == 0 && http_get(h, "Content-Length").p))
		buf_addf(to, "Content-Length: %lld\r\n", (long long)h->length);
	else if (h->length == HTTP_CHUNKED)
		buf_addz(to, "Transfer-Encoding: chunked\r\n");
	if (upgrade) {
		struct str token = http_get(h, "Upgrade");
		buf_addz(to, "Connection: Upgrade\r\n");
		reply_head_add(to, STR("Upgrade"), token);
	} else {
		buf_addz(to, "Connection: close\r\n"); /* one request per upstream stream */
	}
	buf_addz(to, "\r\n");
}

/* A cookie with a Domain would go to the siblings of the host, one with a Path of its own to whatever else shares it: other
 * sandboxes, in both cases. */
static void add_set_cookie(struct buf *to, struct str value, const char *path)
{
	bool first = true;

	buf_addz(to, "Set-Cookie: ");
	for (;;) {
		const char *end = value.n ? memchr(value.p, ';', value.n) : NULL;
		struct str part = http_trim((struct str){ value.p, end ? (size_t)(end - value.p) : value.n });
		const char *eq = part.n ? memchr(part.p, '=', part.n) : NULL;
		struct str name = http_trim((struct str){ part.p, eq ? (size_t)(eq - part.p) : part.n });
		if (first || !(str_eq_nocase(name, STR("Domain")) || (path && str_eq_nocase(name, STR("Path"))))) {
			buf_addz(to, first ? "" : "; ");
			buf_add(to, part.p, part.n);
		}
		first = false;
		if (!end)
			break;
		value.n -= (size_t)(end + 1 - value.p);
		value.p = end + 1;
	}
	if (path)
		buf_addf(to, "; Path=%s", path);
	buf_addz(to, "\r\n");
}

void proxy_copy_answer(struct buf *to, const struct http_head *h, const char *cookie_path)
{
	for (size_t i = 0; i < h->n_fields; i++) {
		struct str name = h->fields[i].name;
		if (is_hop_by_hop(h, name))
			continue;
		if (str_eq_nocase(name, STR("Set-Cookie")))
			add_set_cookie(to, h->fields[i].value, cookie_path);
		else if (!cookie_path || !str_eq_nocase(name, STR("Clear-Site-Data"))) /* the site is not only the sandbox's */
			reply_head_add(to, name, h->fields[i].value);
	}
}
