/* Requests as the sandbox's rules about methods judge them (model/method.h), and those that wait for somebody's word.
 *
 * A request that has to be asked for is held before anything of it goes to the host; of its body no more is read than windows and one buffer
 * hold. It has a number, by which the daemon answers. It goes on, or is refused, when that answer comes, when its time is over, when other
 * rules say so; when its client has gone, or the host, it is nobody's any more. What a held request is resumed by is its protocol's
 * (http1_answered, http2_answered). */
#include "egress/opener_int.h"

#include <stdio.h>
#include <sys/socket.h>

#define HELD_MAX 64 /* at once */

struct held {
	uint64_t id;
	struct conn *conn;
	struct stream *stream; /* of HTTP/2; or NULL */
	struct held **at;      /* who points at this one, to be told when it is gone */
	struct request request;
	char *method, *target;
	uint64_t until_ms;
	struct held *prev, *next;
};

/* --- telling --- */

static bool tell(struct conn *c, enum opener_event_kind kind, const struct request *r, bool allowed, const struct method_rule *rule, const char *reason,
		 uint64_t ask)
{
	struct opener *o = c->o;
	const char *question = memchr(r->target.p, '?', r->target.n);
	size_t path = question ? (size_t)(question - r->target.p) : r->target.n;
	struct opener_event ev = { .magic = OPENER_MAGIC, .kind = kind, .allowed = allowed, .port = c->port, .lost = o->events_lost, .ask = ask };

	snprintf(ev.name, sizeof ev.name, "%s", c->name);
	snprintf(ev.method, sizeof ev.method, "%.*s", (int)MIN(r->method.n, sizeof ev.method - 1), r->method.p);
	snprintf(ev.path, sizeof ev.path, "%.*s", (int)MIN(path, sizeof ev.path - 1), r->target.p);
	snprintf(ev.reason, sizeof ev.reason, "%s", reason ? reason : "");
	snprintf(ev.rule, sizeof ev.rule, "%s", rule ? rule->text : "");
	bool sent = send(o->daemon.fd, &ev, sizeof ev, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
	o->events_lost = sent ? 0 : o->events_lost + 1;
	return sent;
}

/* For the client; the text goes through refusal_body. */
static void say_why(const struct request *r, const struct method_rule *rule, const char *reason, char why[static METHODS_WHY_MAX])
{
	int n = (int)MIN(r->method.n, (size_t)METHOD_NAME_MAX);

	if (rule)
		snprintf(why, METHODS_WHY_MAX, "%.*s is denied here by the rule '%s'%s%s", n, r->method.p, rule->text, reason ? ": " : "", reason ? reason : "");
	else
		snprintf(why, METHODS_WHY_MAX, "%.*s is denied here by the sandbox's rules about methods: %s", n, r->method.p, reason ? reason : "");
}

/* --- those that wait --- */

static void drop(struct held *h)
{
	struct opener *o = h->conn->o;

	DL_DELETE(o->held, h);
	o->n_held--;
	*h->at = NULL;
	free(h->method);
	free(h->target);
	free(h);
}

static void end(struct held *h)
{
	(void)tell(h->conn, OPENER_ASK_END, &h->request, false, NULL, NULL, h->id);
	drop(h);
}

void held_gone(struct held *h)
{
	if (h)
		end(h);
}

void methods_gone(struct conn *c)
{
	struct held *h, *next;

	DL_FOREACH_SAFE (c->o->held, h, next)
		if (h->conn == c)
			end(h);
}

static bool hold(struct conn *c, struct stream *s, struct held **at, const struct request *r, const struct method_rule *rule)
{
	struct opener *o = c->o;

	if (o->n_held >= HELD_MAX)
		return false;
	struct held *h = xcalloc(1, sizeof *h);
	*h = (struct held){ .conn = c, .stream = s, .at = at, .until_ms = now_ms() + OPENER_ASK_MS };
	h->method = xstrndup(r->method.p, r->method.n);
	h->target = xstrndup(r->target.p, r->target.n);
	h->request = (struct request){ str_of(h->method), str_of(h->target) };
	while (!h->id)
		random_bytes(&h->id, sizeof h->id);
	DL_APPEND(o->held, h);
	o->n_held++;
	*at = h;
	if (tell(c, OPENER_ASK, r, false, rule, NULL, h->id))
		return true;
	drop(h); /* nobody would ever hear of it */
	return false;
}

enum methods_say methods_judge(struct conn *c, struct stream *s, struct held **at, const struct request *r, char why[static METHODS_WHY_MAX])
{
	struct method_verdict v;

	if (!method_judge(&c->o->keys.rules, c->name, c->port, r->method, r->target, &v))
		return METHODS_GO;
	if (v.verdict == PERMIT_ASK) {
		if (hold(c, s, at, r, v.rule))
			return METHODS_HELD;
		v.reason = "too many requests wait for an answer";
	}
	bool allowed = v.verdict == PERMIT_ALLOW;
	(void)tell(c, OPENER_METHOD, r, allowed, v.rule, v.reason, 0);
	if (!allowed)
		say_why(r, v.rule, v.reason, why);
	return allowed ? METHODS_GO : METHODS_DENIED;
}

/* It waits no longer; nor do others of the same connection, if that has ended with it. */
static void resolve(struct held *h, bool allowed, const struct method_rule *rule, const char *reason)
{
	char why[METHODS_WHY_MAX] = "";
	struct conn *c = h->conn;
	struct stream *s = h->stream;

	(void)tell(c, OPENER_METHOD, &h->request, allowed, rule, reason, h->id);
	if (!allowed)
		say_why(&h->request, rule, reason, why);
	drop(h);
	if (s)
		http2_answered(s, allowed, why);
	else
		http1_answered(c, allowed, why);
	opened_queue(c);
}

/* By the rules of now: *ret is what becomes of it. */
static bool still_waits(const struct held *h, struct method_verdict *ret)
{
	if (!method_judge(&h->conn->o->keys.rules, h->conn->name, h->conn->port, h->request.method, h->request.target, ret))
		*ret = (struct method_verdict){ PERMIT_ALLOW, NULL, "no rule names it" };
	return ret->verdict == PERMIT_ASK;
}

void methods_answer(struct opener *o, uint64_t id, bool allowed)
{
	struct method_verdict v;
	struct held *h;

	DL_SEARCH_SCALAR(o->held, h, id, id);
	if (!h || !still_waits(h, &v)) /* the latter are about to hear of it */
		return;
	resolve(h, allowed, v.rule, "as it was answered");
}

static struct held *next_judged(struct opener *o, struct method_verdict *ret)
{
	struct held *h;

	DL_FOREACH (o->held, h)
		if (!still_waits(h, ret))
			return h;
	return NULL;
}

static struct held *next_overdue(struct opener *o, uint64_t now)
{
	struct held *h;

	DL_FOREACH (o->held, h)
		if (now >= h->until_ms)
			return h;
	return NULL;
}

/* From the start again after each, as more than one may be gone. */
void methods_rejudge(struct opener *o)
{
	struct method_verdict v;

	for (struct held *h; (h = next_judged(o, &v));)
		resolve(h, v.verdict == PERMIT_ALLOW, v.rule, v.reason);
}

void methods_sweep(struct opener *o, uint64_t now)
{
	struct method_verdict v;

	for (struct held *h; (h = next_overdue(o, now));) {
		(void)still_waits(h, &v);
		resolve(h, false, v.rule, "nobody answered in time");
	}
}
