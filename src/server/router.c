/* From a path to a route. Segments are split first and decoded after, each once, so an encoded slash or dot can't move a
 * border; "//", "." and ".." are not repaired, they match nothing. Of several routes that match, the one that is literal
 * where the other has a name wins, in the first segment where they differ. */
#include "server/internal.h"
#include "wire/urlencode.h"

#include <errno.h>

static bool next_segment(struct str *rest, bool collapse, struct str *ret_segment)
{
	if (rest->n == 0)
		return false;
	do {
		rest->p++, rest->n--; /* the slash in front */
	} while (collapse && rest->n && rest->p[0] == '/');
	const char *q = rest->n ? memchr(rest->p, '/', rest->n) : NULL;
	*ret_segment = (struct str){ rest->p, q ? (size_t)(q - rest->p) : rest->n };
	rest->p += ret_segment->n;
	rest->n -= ret_segment->n;
	return true;
}

static bool is_name(struct str segment)
{
	return segment.n > 2 && segment.p[0] == '{' && segment.p[segment.n - 1] == '}';
}

static bool is_tail(struct str segment)
{
	return is_name(segment) && segment.p[segment.n - 2] == '*';
}

int route_check(const struct dialect *d, struct err *e)
{
	for (size_t i = 0; i < d->n_routes; i++) {
		struct str rest = str_of(d->routes[i].pattern), segment;
		size_t names = 0;
		bool tail = false, bad = rest.n ? rest.p[0] != '/' : !*d->prefix; /* "": the prefix itself */
		while (!bad && next_segment(&rest, false, &segment)) {
			bad = tail;
			tail = is_tail(segment);
			names += is_name(segment);
		}
		if (bad || names > MAX_ARGS || !d->routes[i].method || !d->routes[i].handle)
			return err_set(e, ERR_INTERNAL, EINVAL, "dialect %s: bad route %s", d->name, d->routes[i].pattern);
	}
	return 0;
}

const struct dialect *route_dialect(const struct server *s, struct str path, struct str *ret_rest)
{
	const struct dialect *best = NULL;
	size_t best_n = 0;

	for (size_t i = 0; i < s->n_dialects; i++) {
		struct str prefix = str_of(s->dialects[i]->prefix);
		if (prefix.n > path.n || memcmp(prefix.p, path.p, prefix.n) != 0)
			continue;
		if (path.n > prefix.n && path.p[prefix.n] != '/')
			continue;
		if (!best || prefix.n > best_n) {
			best = s->dialects[i];
			best_n = prefix.n;
		}
	}
	*ret_rest = (struct str){ path.p + best_n, path.n - best_n };
	return best;
}

/* Does the raw segment mean this literal? Mostly no, and at first sight: decoding makes it shorter, never longer. */
static bool literal_matches(struct str literal, struct str segment)
{
	char text[128];

	if (segment.n <= literal.n || !memchr(segment.p, '%', segment.n))
		return str_eq(literal, segment);
	if (segment.n >= sizeof text)
		return false;
	ssize_t n = url_decode(segment, URL_NO_SLASH, text);
	return n >= 0 && str_eq(literal, (struct str){ text, (size_t)n });
}

static bool pattern_matches(const char *pattern, struct str path, bool collapse)
{
	struct str want = str_of(pattern), have, literal;

	while (next_segment(&want, false, &literal)) {
		if (!next_segment(&path, collapse, &have))
			return false;
		if (is_tail(literal))
			return true;
		if (is_name(literal)) {
			if (have.n == 0 || str_eqz(have, ".") || str_eqz(have, ".."))
				return false;
		} else if (!literal_matches(literal, have)) {
			return false;
		}
	}
	return path.n == 0;
}

static int rank(struct str segment)
{
	return is_tail(segment) ? 0 : is_name(segment) ? 1 : 2;
}

static bool more_specific(const struct route *a, const struct route *b)
{
	struct str x = str_of(a->pattern), y = str_of(b->pattern), p, q;

	while (next_segment(&x, false, &p) && next_segment(&y, false, &q))
		if (rank(p) != rank(q))
			return rank(p) > rank(q);
	return strcmp(b->method, "*") == 0 && strcmp(a->method, "*") != 0;
}

/* 2: the method itself, 1: HEAD answered by GET, 0: no. */
static int method_matches(const struct route *route, const char *method)
{
	if (streq(route->method, method) || streq(route->method, "*"))
		return 2;
	return streq(method, "HEAD") && streq(route->method, "GET");
}

static void allow(struct buf *b, const char *method)
{
	struct str rest = buf_str(b), item;

	while (http_list_next(&rest, &item))
		if (str_eqz(item, method))
			return;
	buf_addf(b, "%s%s", b->len ? ", " : "", method);
}

static enum route_result bind_args(struct request *r, const struct route *route, struct str path, bool collapse)
{
	struct str want = str_of(route->pattern), segment, have;
	char *to = r->arg_text = xmalloc(path.n + MAX_ARGS);

	while (next_segment(&want, false, &segment)) {
		struct str before = path;
		next_segment(&path, collapse, &have);
		if (!is_name(segment))
			continue;
		struct path_arg *a = &r->args[r->n_args++];
		a->value = to;
		a->name = (struct str){ segment.p + 1, segment.n - 2 };
		if (is_tail(segment)) {
			a->name.n--;
			size_t n = (size_t)(before.p + before.n - have.p);
			memcpy(to, have.p, n);
			to[n] = '\0';
			break;
		}
		ssize_t n = url_decode(have, URL_NO_SLASH, to);
		if (n < 0 || streq(to, ".") || streq(to, ".."))
			return ROUTE_BAD_PATH;
		to += n + 1;
	}
	return ROUTE_FOUND;
}

enum route_result route_find(struct request *r, const struct dialect *d, struct str rest, struct buf *ret_allow)
{
	const struct route *best = NULL;
	int best_match = 0;
	bool collapse = d->collapse_slashes;

	for (size_t i = 0; i < d->n_routes; i++) {
		const struct route *route = &d->routes[i];
		if (!pattern_matches(route->pattern, rest, collapse))
			continue;
		int match = method_matches(route, r->head->method);
		if (match == 0)
			allow(ret_allow, route->method);
		else if (!best || more_specific(route, best) || (!more_specific(best, route) && match > best_match)) {
			best = route;
			best_match = match;
		}
	}
	if (!best)
		return ret_allow->len ? ROUTE_METHOD : ROUTE_NONE;
	r->route = best;
	return bind_args(r, best, rest, collapse);
}
