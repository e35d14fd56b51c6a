/* The life of a request whose answer comes later, and what every handler asks about its request. */
#include "dialect/daytona/internal.h"

#include <ctype.h>
#include <errno.h>

static void call_gone(void *ctx)
{
	struct call *c = ctx;
	c->r = NULL;
	call_free(c);
}

void *call_new(size_t size, struct daytona *d, struct request *r, void (*drop)(struct call *c))
{
	struct call *c = xcalloc(1, size);
	c->d = d;
	c->r = r;
	c->caller = *caller_of(r);
	c->ref = xstrdup(req_path_arg(r, "id"));
	c->drop = drop;
	req_on_gone(r, call_gone, c);
	return c;
}

void call_detach(struct call *c)
{
	if (c->r)
		req_on_gone(c->r, NULL, NULL);
	c->r = NULL;
}

void call_free(struct call *c)
{
	call_detach(c);
	api_forget(c->d->api, c);
	if (c->drop)
		c->drop(c);
	free(c->ref);
	free(c);
}

void call_json(struct call *c, int status, json_t *take)
{
	struct request *r = c->r;
	call_detach(c);
	req_reply_json(r, status, take);
	call_free(c);
}

void call_empty(struct call *c, int status)
{
	struct request *r = c->r;
	call_detach(c);
	req_reply_empty(r, status);
	call_free(c);
}

void call_fail(struct call *c, const struct err *e)
{
	struct request *r = c->r;
	call_detach(c);
	fail(r, e);
	call_free(c);
}

void call_on_done_empty(void *call, const struct err *e, int status)
{
	if (e)
		call_fail(call, e);
	else
		call_empty(call, status);
}

const struct caller *caller_of(const struct request *r)
{
	return req_data(r);
}

bool toolbox_sandbox(struct daytona *d, struct request *r, struct sandbox_view *ret)
{
	struct err e = { 0 };
	const char *id = req_path_arg(r, "id");
	if (api_sandbox_get(d->api, caller_of(r), id, ret, &e) < 0) {
		if (e.kind == ERR_NOT_FOUND)
			sandbox_not_found(&e, id);
		fail(r, &e);
		return false;
	}
	switch (ret->state) {
	case SANDBOX_CREATING:
	case SANDBOX_STARTING:
	case SANDBOX_RESUMING:
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSED: /* the verb decides */
		return true;
	case SANDBOX_DELETING:
	case SANDBOX_DELETED:
		sandbox_not_found(&e, id);
		break;
	case SANDBOX_ERROR:
		err_set(&e, ERR_CONFLICT, 0, "sandbox is not running: %s", ret->error ? ret->error : "it failed");
		break;
	case SANDBOX_STOPPING:
	case SANDBOX_STOPPED:
	case SANDBOX_SUSPENDING:
	case SANDBOX_SUSPENDED:
	case SANDBOX_STATE_COUNT:
	default:
		err_set(&e, ERR_CONFLICT, 0, "sandbox is not running: it is %s; start it first", sandbox_state_word(ret->state));
	}
	fail(r, &e);
	return false;
}

/* The Host goes back to the client inside URLs, so only what can be a host is taken. */
static bool host_plausible(struct str host)
{
	if (!host.p || host.n == 0 || host.n > 255)
		return false;
	for (size_t i = 0; i < host.n; i++)
		if (!isalnum((unsigned char)host.p[i]) && !strchr(".-_:[]", host.p[i]))
			return false;
	return true;
}

char *base_url(const struct daytona *d, const struct request *r)
{
	if (d->public_url)
		return xstrdup(d->public_url);
	struct str host = req_header(r, "Host");
	if (!host_plausible(host))
		host = STR("127.0.0.1:4780");
	return xasprintf("http://%.*s", (int)host.n, host.p);
}

/* "0.167.0" and later, and development builds ("0.0.0-dev", anything unnumbered), read JSON logs. */
static bool version_reads_json(struct str v)
{
	unsigned long part[2] = { 0, 0 };
	size_t at = v.n && (v.p[0] == 'v' || v.p[0] == 'V') ? 1 : 0;
	for (int k = 0; k < 2; k++) {
		size_t start = at;
		for (; at < v.n && isdigit((unsigned char)v.p[at]) && at - start < 6; at++)
			part[k] = part[k] * 10 + (unsigned long)(v.p[at] - '0');
		if (at == start)
			return true;
		if (at < v.n && v.p[at] == '.')
			at++;
	}
	return part[0] > 0 || part[1] >= 167 || (part[0] == 0 && part[1] == 0);
}

enum log_form wanted_log_form(const struct request *r)
{
	struct str version = req_header(r, "X-Daytona-SDK-Version");
	if (version.p)
		return version_reads_json(version) ? LOG_JSON : LOG_MARKED;
	struct str split = req_header(r, "X-Daytona-Split-Output");
	return split.p && str_eq_nocase(split, STR("true")) ? LOG_JSON : LOG_PLAIN;
}
