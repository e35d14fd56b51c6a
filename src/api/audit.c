/* The verbs of the audit log and its receivers. An operator sees every line, others those of their own tenant. */
#include "api/api_int.h"

#include <errno.h>

enum { PAGE_MAX = 1000 };

int api_audit_read(struct api *a, const struct caller *c, const struct audit_query *q, void (*each)(void *ctx, uint64_t seq, struct str line), void *ctx,
		   uint64_t *ret_next, struct err *e)
{
	struct audit_filter f = { .tenant = c->operator_ ? NULL : c->tenant, .type = q->type, .sandbox = q->sandbox };
	struct sandbox *s = q->sandbox && strlen(q->sandbox) <= 128 ? core_find(a->core, c->tenant, q->sandbox) : NULL;
	struct sandbox_view v;

	if (q->limit > PAGE_MAX)
		return err_set(e, ERR_INVALID, EINVAL, "limit: 1 to %d", PAGE_MAX);
	if (s) { /* by its name, as long as it has one; lines know ids */
		sandbox_view(s, &v);
		f.sandbox = v.id;
	}
	return audit_read(core_get_options(a->core)->audit, q->after, q->limit ? q->limit : 100, &f, each, ctx, ret_next, e);
}

uint64_t api_audit_head(struct api *a, const char **ret_hash)
{
	const struct audit *log = core_get_options(a->core)->audit;

	*ret_hash = audit_hash(log);
	return audit_seq(log);
}

struct audit_watch *api_audit_watch(struct api *a, void (*grown)(void *ctx), void *ctx)
{
	return core_audit_watch(a->core, grown, ctx);
}

/* --- webhooks --- */

int api_webhook_create(struct api *a, const struct caller *c, const char *url, const char *secret, char *const *types, struct webhook_view *ret,
		       struct err *e)
{
	struct webhook_row row = { .url = xstrdup(url), .secret = xstrdup(secret), .types = strv_copy(types) };

	int rc = api_need_operator(c, e);
	if (rc == 0)
		rc = core_webhook_add(a->core, &row, ret, e);
	if (rc == 0) {
		struct audit_line *l = api_line(a, c, "webhook.created", NULL);
		audit_text(l, "id", ret->id);
		audit_text(l, "url", ret->url);
		audit_texts(l, "types", types);
		api_line_end(a);
	}
	webhook_row_done(&row);
	return rc;
}

int api_webhook_list(struct api *a, const struct caller *c, void (*each)(void *ctx, const struct webhook_view *v), void *ctx, struct err *e)
{
	int rc = api_need_operator(c, e);

	if (rc == 0)
		core_webhook_each(a->core, each, ctx);
	return rc;
}

int api_webhook_delete(struct api *a, const struct caller *c, const char *id, struct err *e)
{
	int rc = api_need_operator(c, e);

	if (rc == 0)
		rc = core_webhook_delete(a->core, id, e);
	if (rc == 0) {
		audit_text(api_line(a, c, "webhook.deleted", NULL), "id", id);
		api_line_end(a);
	}
	return rc;
}
