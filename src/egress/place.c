#include "egress/place.h"

#include <stdio.h>
#include <strings.h>

#define PREFIX "caisson-placeholder-"

enum placed place_refuse(struct place *p, const struct key *at_fault, int status, const char *reason)
{
	p->status = status;
	p->at_fault = at_fault;
	snprintf(p->reason, sizeof p->reason, "%s", reason);
	return PLACE_REFUSED;
}

struct place_field *place_find(struct place *p, const char *name, size_t *ret_count)
{
	struct place_field *found = NULL;
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		if (str_eq_nocase(p->fields[i].name, str_of(name))) {
			found = found ? found : &p->fields[i];
			n++;
		}
	if (ret_count)
		*ret_count = n;
	return found;
}

static void wipe(char **text)
{
	free_secret(take_ptr(text));
}

void place_done(struct place *p)
{
	for (size_t i = 0; i < p->n; i++)
		wipe(&p->fields[i].fresh);
	wipe(&p->fresh_target);
}

static const char *find(struct str in, const char *what)
{
	return in.n ? memmem(in.p, in.n, what, strlen(what)) : NULL;
}

/* Every occurrence. Heap. */
static char *replaced(struct str in, const char *what, struct str with)
{
	struct buf out;
	const char *at;

	buf_init(&out, 4U << 20);
	while ((at = find(in, what))) {
		(void)buf_add(&out, in.p, (size_t)(at - in.p));
		(void)buf_add(&out, with.p, with.n);
		in.n -= (size_t)(at - in.p) + strlen(what);
		in.p = at + strlen(what);
	}
	(void)buf_add(&out, in.p, in.n);
	if (!out.overflow)
		return buf_take(&out);
	buf_done(&out);
	return NULL;
}

/* --- where it may go --- */

static struct str path_of(struct str target)
{
	const char *question = memchr(target.p, '?', target.n);

	return (struct str){ target.p, question ? (size_t)(question - target.p) : target.n };
}

static bool path_is_plain(struct str path)
{
	auto_free char *plain = path_plain(path);

	return plain != NULL;
}

static bool path_begins(struct str path, const char *prefix)
{
	size_t n = strlen(prefix);

	if (path.n < n || memcmp(path.p, prefix, n) != 0)
		return false;
	return path.n == n || prefix[n - 1] == '/' || path.p[n] == '/';
}

static bool in_list(char *const *list, struct str word, bool nocase)
{
	for (; list && *list; list++)
		if (nocase ? str_eq_nocase(word, str_of(*list)) : str_eqz(word, *list))
			return true;
	return false;
}

static enum placed may_go(const struct key *k, struct place *p)
{
	struct str path = path_of(p->target);
	bool fits = !k->spec.paths;

	if (p->plain)
		return place_refuse(p, k, 403, "a secret goes out by TLS only");
	if (!key_is_for(k, p->host, p->port))
		return place_refuse(p, k, 403, "the secret may not go to this host");
	if (k->spec.methods && !in_list(k->spec.methods, p->method, false))
		return place_refuse(p, k, 403, "the secret may not go out with this method");
	if (k->spec.paths && !path_is_plain(path))
		return place_refuse(p, k, 403, "a path that could be read in two ways, for a secret that is bound to paths");
	for (char *const *one = k->spec.paths; one && *one && !fits; one++)
		fits = path_begins(path, *one);
	return fits ? PLACED : place_refuse(p, k, 403, "the secret may not go to this path");
}

/* --- the target --- */

/* Is the parameter that this byte of the query is in one of the secret's? */
static bool in_own_parameter(const struct key *k, struct str query, const char *at)
{
	const char *begin = at;

	while (begin > query.p && begin[-1] != '&')
		begin--;
	const char *equals = memchr(begin, '=', (size_t)(at - begin));
	return equals && in_list(k->spec.query, (struct str){ begin, (size_t)(equals - begin) }, false);
}

static enum placed place_target(const struct key *k, struct place *p)
{
	struct str target = p->fresh_target ? str_of(p->fresh_target) : p->target, path = path_of(target);

	if (!find(target, k->placeholder))
		return PLACED;
	if (find(path, k->placeholder) || path.n == target.n)
		return place_refuse(p, k, 403, "the secret may not stand in a path");
	struct str query = { target.p + path.n + 1, target.n - path.n - 1 };
	for (struct str rest = query; rest.n;) {
		const char *at = find(rest, k->placeholder);
		if (!at)
			break;
		if (!in_own_parameter(k, query, at))
			return place_refuse(p, k, 403, "the secret may not stand in this parameter of the query");
		at += strlen(k->placeholder);
		rest = (struct str){ at, (size_t)(query.p + query.n - at) };
	}
	enum placed v = may_go(k, p);
	if (v != PLACED)
		return v;
	char *value = query_encoded(k->spec.value), *fresh = replaced(target, k->placeholder, str_of(value));
	wipe(&value);
	wipe(&p->fresh_target);
	p->fresh_target = fresh;
	p->placed = k;
	return fresh ? PLACED : place_refuse(p, k, 400, "the request is too long with the secret in it");
}

/* --- fields --- */

/* What "*" is not: fields that frame the message or say where it goes. */
static bool is_framing(struct str name)
{
	static const char *const names[] = { "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect",
					     "keep-alive", "proxy-authorization", "proxy-connection", "content-type", "accept-encoding", "via",
					     "forwarded", "x-forwarded-for", "referer", "origin", "user-agent" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_eq_nocase(name, str_of(names[i])))
			return true;
	return name.n && name.p[0] == ':';
}

static bool may_stand(const struct key *k, struct str name)
{
	return in_list(k->spec.headers, name, true) || (in_list(k->spec.headers, STR("*"), false) && !is_framing(name));
}

static enum placed put_value(const struct key *k, struct place *p, struct place_field *f, char *fresh_take)
{
	size_t count = 0;
	char name[64];

	snprintf(name, sizeof name, "%.*s", (int)MIN(f->name.n, sizeof name - 1), f->name.p);
	place_find(p, name, &count);
	if (!fresh_take || count != 1) {
		wipe(&fresh_take);
		return place_refuse(p, k, 400, count == 1 ? "the request is too long with the secret in it" : "a second field beside the one with the secret");
	}
	wipe(&f->fresh);
	f->fresh = fresh_take;
	p->placed = k;
	return PLACED;
}

static bool is_basic(const struct place_field *f, struct str *ret_coded)
{
	struct str v = place_value(f);

	if (v.n < 7 || strncasecmp(v.p, "Basic ", 6) != 0)
		return false;
	*ret_coded = (struct str){ v.p + 6, v.n - 6 };
	while (ret_coded->n && ret_coded->p[0] == ' ') {
		ret_coded->p++;
		ret_coded->n--;
	}
	return ret_coded->n <= 64 << 10;
}

/* The two halves of Basic credentials are looked at decoded. */
static enum placed place_basic(const struct key *k, struct place *p, struct place_field *f, struct str coded)
{
	char *plain = xcalloc(coded.n + 4, 1), *fresh = NULL, *text = NULL;
	ssize_t n = base64_decode(coded, plain);
	enum placed v = PLACED;

	if (n > 0 && find((struct str){ plain, (size_t)n }, k->placeholder)) {
		v = k->spec.basic && str_eq_nocase(f->name, STR("Authorization")) ? may_go(k, p) : place_refuse(p, k, 403, "the secret may not stand in Basic authentication here");
		if (v == PLACED && (fresh = replaced((struct str){ plain, (size_t)n }, k->placeholder, str_of(k->spec.value)))) {
			size_t len = strlen(fresh);
			text = xmalloc(6 + 4 * ((len + 2) / 3) + 1);
			memcpy(text, "Basic ", 6);
			base64_encode(fresh, len, text + 6);
		}
		if (v == PLACED)
			v = put_value(k, p, f, text);
	}
	wipe(&fresh);
	free(plain);
	return v;
}

static enum placed place_fields(const struct key *k, struct place *p)
{
	enum placed v = PLACED;
	struct str coded;

	for (size_t i = 0; i < p->n && v == PLACED; i++) {
		struct place_field *f = &p->fields[i];
		if (find(f->name, k->placeholder))
			return place_refuse(p, k, 403, "the secret may not be the name of a field");
		if (find(place_value(f), k->placeholder)) {
			v = may_stand(k, f->name) ? may_go(k, p) : place_refuse(p, k, 403, "the secret may not stand in this field");
			if (v == PLACED)
				v = put_value(k, p, f, replaced(place_value(f), k->placeholder, str_of(k->spec.value)));
		} else if (is_basic(f, &coded)) {
			v = place_basic(k, p, f, coded);
		}
	}
	return v;
}

static int hex_of(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* Also where bytes of it are percent-encoded. */
static bool find_encoded(struct str in, const char *what)
{
	char *plain = xcalloc(in.n + 1, 1);
	size_t n = 0;

	for (size_t i = 0; i < in.n; i++) {
		bool coded = in.p[i] == '%' && in.n - i > 2 && hex_of(in.p[i + 1]) >= 0 && hex_of(in.p[i + 2]) >= 0;
		plain[n++] = coded ? (char)(hex_of(in.p[i + 1]) << 4 | hex_of(in.p[i + 2])) : in.p[i];
		i += coded ? 2 : 0;
	}
	bool found = find((struct str){ plain, n }, what) != NULL;
	explicit_bzero(plain, n);
	free(plain);
	return found;
}

/* One that stands for nothing here: of a secret that was taken away, or of another sandbox. Sent on it would only be told to strangers. */
static bool has_stranger(const struct place *p)
{
	struct str coded;

	if (find_encoded(p->fresh_target ? str_of(p->fresh_target) : p->target, PREFIX))
		return true;
	for (size_t i = 0; i < p->n; i++) {
		if (find(place_value(&p->fields[i]), PREFIX))
			return true;
		if (is_basic(&p->fields[i], &coded)) {
			char *plain = xcalloc(coded.n + 4, 1);
			ssize_t n = base64_decode(coded, plain);
			bool found = n > 0 && find((struct str){ plain, (size_t)n }, PREFIX);
			wipe(&plain);
			if (found)
				return true;
		}
	}
	return false;
}

/* A coded answer could not be looked through for the value. */
static void ask_for_plain_answer(struct place *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (str_eq_nocase(p->fields[i].name, STR("Accept-Encoding")) || str_eq_nocase(p->fields[i].name, STR("grpc-accept-encoding"))) {
			free(p->fields[i].fresh);
			p->fields[i].fresh = xstrdup("identity");
		}
}

enum placed place_request(const struct keyring *r, struct place *p)
{
	enum placed v = PLACED;

	for (size_t i = 0; i < r->n && v == PLACED; i++) {
		const struct key *k = &r->v[i];
		if (k->spec.aws_key_id)
			continue; /* signs last, over what is placed then */
		v = place_target(k, p);
		if (v == PLACED)
			v = place_fields(k, p);
	}
	if (v == PLACED && has_stranger(p))
		v = place_refuse(p, NULL, 403, "a placeholder that stands for no secret of this sandbox, or that may not stand there");
	for (size_t i = 0; i < r->n && v == PLACED; i++) {
		const struct key *k = &r->v[i];
		if (k->spec.aws_key_id && sign_is_for(k, p)) {
			v = may_go(k, p);
			return v == PLACED ? sign_request(k, p) : v;
		}
	}
	if (v == PLACED && p->placed)
		ask_for_plain_answer(p);
	return v;
}
