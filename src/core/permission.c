/* What waits for somebody's word. Programs (rules "ask program:..."): the guest holds them, and denies what nobody answers in time. Hosts
 * ("ask host:..."): the edge holds the look-up of the name; an answer is part of the sandbox from then on. Requests (rules "ask method:..."): the sandbox's
 * opener holds them; an answer is for the one. Here is only the list. Of programs it lives as long as the guest's connection: the guest tells who comes back what
 * still waits. What a sandbox can cause is bounded: so many questions at once, and so many a second of which there is an event and a line of the log. */
#include "core/core_int.h"
#include "core/secret.h"
#include "egress/egress.h"
#include "model/permission.h"
#include "model/policy.h"
#include "model/reach.h"
#include "wire/edge.h"
#include "wire/guest.h"

#include <errno.h>

enum { QUESTIONS_MAX = 256 };

struct question {
	uint64_t id;
	struct question_view view;
	struct question *next;
	char run[32];
	char *rule; /* its own: the sandbox's change, and are copied whenever anything of it does */
};

static struct question **find(struct sandbox *s, uint64_t id)
{
	struct question **at = &s->questions;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static void forget(struct question **at)
{
	struct question *q = *at;

	*at = q->next;
	free((char *)(uintptr_t)q->view.path);
	free((char *)(uintptr_t)q->view.host);
	free((char *)(uintptr_t)q->view.method);
	free(q->rule);
	free(q);
}

/* --- rules that change --- */

/* Those that the guest keeps, in their order. */
static bool same_of_guest(char *const *a, char *const *b)
{
	for (size_t i = 0;; i++) {
		const char *one = permission_of_guest(a, i), *other = permission_of_guest(b, i);
		if (!one || !other)
			return one == other;
		if (!streq(one, other))
			return false;
	}
}

static int check_change(struct sandbox *s, const struct sandbox_spec *changed, struct err *e)
{
	int rc = permissions_validate(changed->permissions, e);

	if (rc == 0 && !same_of_guest(s->row.spec.permissions, changed->permissions))
		rc = err_set(e, ERR_UNSUPPORTED, ENOTSUP, "permissions: those of programs and files bind what runs already, and stay as they are: only those of hosts and methods can change");
	if (rc == 0)
		rc = reach_check(changed, e);
	if (rc == 0)
		rc = network_permitted(s->core, changed, e);
	if (rc == 0 && s->boundary)
		rc = permissions_kept(s->core, s->boundary, changed, e);
	if (rc == 0 && s->under_way)
		rc = err_set(e, ERR_CONFLICT, EBUSY, "cannot change the permissions: a state change is in progress (state %s)", sandbox_state_name(s->row.state));
	if (rc == 0 && spec_is_opened(changed) && !sandbox_is_opened(s) && s->row.state != SANDBOX_RUNNING)
		rc = err_set(e, ERR_CONFLICT, EBUSY, "permissions: the first rule about methods is given to a running sandbox only; this one is %s", sandbox_state_name(s->row.state));
	return rc;
}

/* Names that nobody has to be asked for any more: the edge has other rules for those who wait. */
static void forget_unasked(struct sandbox *s)
{
	struct question **at = &s->questions;

	while (*at)
		if ((*at)->view.host && !(*at)->view.method && !reach_asks_for(&s->row.spec, (*at)->view.host))
			forget(at);
		else
			at = &(*at)->next;
}

void sandbox_set_permissions(struct sandbox *s, char *const *rules, sandbox_done_fn done, void *ctx)
{
	bool was_opened = sandbox_is_opened(s);
	struct sandbox_spec changed;
	struct err e;

	spec_copy(&changed, &s->row.spec);
	strv_free(changed.permissions);
	changed.permissions = rules && rules[0] ? strv_copy(rules) : NULL;
	int rc = check_change(s, &changed, &e);
	if (rc < 0)
		spec_done(&changed);
	else
		rc = sandbox_replace_spec(s, &changed, &e);
	if (rc < 0) {
		done(ctx, &e, s);
		return;
	}
	audit_texts(core_audit_begin(s->core, "sandbox.permissions", s->row.tenant, s->row.id), "permissions", s->row.spec.permissions);
	core_audit_end(s->core);
	network_tell(s);
	forget_unasked(s);
	if (!was_opened && sandbox_is_opened(s))
		secrets_install(s, done, ctx);
	else
		done(ctx, NULL, s);
}

/* --- what waits --- */

void permissions_unheard(struct sandbox *s)
{
	struct question **at = &s->questions;

	while (*at)
		if (!(*at)->view.host)
			forget(at);
		else
			at = &(*at)->next;
}

void permissions_forget(struct sandbox *s)
{
	while (s->questions)
		forget(&s->questions);
}

/* Places of those that nobody can answer any more, should their guest not say so. A machine that was paused may have some time left
 * beyond what we count, so while there is room they stay. */
static size_t make_room(struct sandbox *s)
{
	size_t n = 0;

	for (struct question *q = s->questions; q; q = q->next)
		n++;
	for (struct question **at = &s->questions; n >= QUESTIONS_MAX && *at;) {
		if ((*at)->view.until_ms > now_unix_ms()) {
			at = &(*at)->next;
			continue;
		}
		forget(at);
		n--;
	}
	return QUESTIONS_MAX - n;
}

static void add(struct sandbox *s, struct question *q, const char *rule, uint32_t left_ms)
{
	struct question **at = &s->questions;

	q->rule = rule ? xstrdup(rule) : NULL;
	q->view.rule = q->rule;
	while (*at)
		at = &(*at)->next;
	*at = q;
	snprintf(q->view.id, sizeof q->view.id, "%llu", (unsigned long long)q->id);
	q->view.asked_ms = now_unix_ms();
	q->view.until_ms = q->view.asked_ms + left_ms;
	if (audit_question(s, &q->view))
		core_emit(s->core, "permission.asked", s, s->row.state, NULL);
}

void permission_on_ask(void *sandbox, uint64_t id, const struct guest_ask *a)
{
	struct sandbox *s = sandbox;

	if (*find(s, id) || make_room(s) == 0)
		return;
	struct question *q = xcalloc(1, sizeof *q);
	q->id = id;
	snprintf(q->run, sizeof q->run, "run_%llu", (unsigned long long)a->run);
	q->view.run = a->run ? q->run : NULL;
	q->view.path = xstrdup(a->path);
	add(s, q, permission_of_guest(s->row.spec.permissions, a->rule), a->left_ms);
}

void permission_on_host(struct sandbox *s, const char *text)
{
	char name[POLICY_NAME_MAX + 1];

	if (name_canonical(str_of(text), name) < 0 || !reach_asks_for(&s->row.spec, name) || make_room(s) == 0)
		return;
	for (struct question **at = &s->questions, **next; *at; at = next) { /* an old one: its time was over, or the edge is another */
		next = &(*at)->next;
		if ((*at)->view.host && !(*at)->view.method && streq((*at)->view.host, name)) {
			forget(at);
			break;
		}
	}
	struct question *q = xcalloc(1, sizeof *q);
	do
		random_bytes(&q->id, sizeof q->id);
	while (*find(s, q->id));
	q->view.host = xstrdup(name);
	add(s, q, reach_asks_for(&s->row.spec, name), EDGE_ASK_MS);
}

void permission_on_method(struct sandbox *s, const struct opener_event *ev)
{
	if (!ev->ask || *find(s, ev->ask) || make_room(s) == 0)
		return;
	struct question *q = xcalloc(1, sizeof *q);
	q->id = ev->ask;
	q->view.method = xstrdup(ev->method);
	q->view.host = xstrdup(ev->name);
	q->view.path = xstrdup(ev->path);
	add(s, q, ev->rule, OPENER_ASK_MS);
}

void permission_on_method_end(struct sandbox *s, uint64_t id)
{
	struct question **at = &s->questions;

	while (*at)
		if ((*at)->view.method && (!id || (*at)->id == id))
			forget(at);
		else
			at = &(*at)->next;
}

void permission_on_ask_end(void *sandbox, uint64_t id)
{
	struct sandbox *s = sandbox;
	struct question **at = find(s, id);

	if (*at)
		forget(at);
}

void sandbox_each_question(struct sandbox *s, void (*each)(void *ctx, const struct question_view *v), void *ctx)
{
	for (struct question *q = s->questions; q; q = q->next)
		if (!q->view.host || q->view.until_ms > now_unix_ms()) /* nobody says when these end */
			each(ctx, &q->view);
}

int sandbox_answer(struct sandbox *s, const char *id, bool allowed, struct err *e)
{
	uint64_t number = 0;
	struct question **at = parse_u64(str_of(id), UINT64_MAX, &number) == 0 ? find(s, number) : NULL;

	if (!at || !*at)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no question '%.40s' waits for an answer", id);
	if ((*at)->view.host && (*at)->view.until_ms <= now_unix_ms())
		return err_set(e, ERR_NOT_FOUND, ENOENT, "no question '%.40s' waits for an answer", id);
	if ((*at)->view.method) {
		egress_answer(s->core->o.egress, s->row.id, number, allowed);
		audit_answer(s, &(*at)->view, allowed);
		forget(at);
		return 0;
	}
	if ((*at)->view.host) {
		int rc = sandbox_answer_host(s, (*at)->view.host, allowed, e);
		if (rc == 0) {
			audit_answer(s, &(*at)->view, allowed);
			forget(at);
		}
		return rc;
	}
	if (s->row.state != SANDBOX_RUNNING)
		return err_set(e, ERR_CONFLICT, EBUSY, "the sandbox is not running (state %s)", sandbox_state_name(s->row.state));
	if (!s->link || !link_is_open(s->link))
		return err_set(e, ERR_UNAVAILABLE, EPIPE, "there is no connection to the sandbox's guest");
	audit_answer(s, &(*at)->view, allowed);
	link_answer(s->link, number, allowed);
	forget(at);
	return 0;
}
