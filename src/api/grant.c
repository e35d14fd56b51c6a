/* Ways in: tokens for one thing of one sandbox, ports published on this host. */
#include "api/api_int.h"

#include <errno.h>
#include <stdio.h>

/* Never the token. */
static void say(struct api *a, const struct caller *c, const char *type, const struct sandbox *s, enum grant_kind kind, uint16_t port)
{
	struct sandbox_view v;

	sandbox_view(s, &v);
	struct audit_line *l = api_line(a, c, type, v.id);
	audit_text(l, "kind", grant_kind_name(kind));
	audit_u64(l, "port", port);
	api_line_end(a);
}

int api_grant_create(struct api *a, const struct caller *c, const char *ref, enum grant_kind kind, uint16_t port, uint64_t seconds,
                     char ret_token[static GRANT_TOKEN_SIZE], struct grant_view *ret, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);
	int rc = s ? sandbox_grant(s, kind, port, seconds, ret_token, ret, e) : -ENOENT;

	if (rc == 0)
		say(a, c, "grant.created", s, kind, port);
	return rc;
}

int api_grant_open(struct api *a, struct str token, enum grant_kind kind, uint16_t port, struct caller *ret, char ret_sandbox[static 40], struct err *e)
{
	struct sandbox *s = core_granted(a->core, token, kind, port);
	struct sandbox_view v;

	if (!s)
		return err_set(e, ERR_UNAUTHENTICATED, EACCES, "this token is not valid, or not any more");
	sandbox_view(s, &v);
	api_owner(s, &v, ret);
	snprintf(ret_sandbox, 40, "%s", v.id);
	return 0;
}

int api_grant_revoke(struct api *a, const struct caller *c, const char *ref, enum grant_kind kind, const char *token, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	sandbox_revoke(s, kind, token);
	say(a, c, "grant.revoked", s, kind, 0);
	return 0;
}

int api_port_publish(struct api *a, const struct caller *c, const char *ref, const struct publication *p, struct publication *ret, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	api_act(a, c);
	int rc = sandbox_publish(s, p, ret, e);
	api_act(a, NULL);
	return rc;
}

int api_port_unpublish(struct api *a, const struct caller *c, const char *ref, uint16_t host_port, struct err *e)
{
	struct sandbox *s = api_lookup(a, c, ref, e);

	if (!s)
		return -ENOENT;
	api_act(a, c);
	int rc = sandbox_unpublish(s, host_port, e);
	api_act(a, NULL);
	return rc;
}
