#include "egress/record.h"

#include <errno.h>

#define RULES_MAX (POLICY_RULES_MAX + POLICY_OPERATOR_MAX) /* in each list */

enum list { LIST_ALLOW, LIST_DENY, LIST_ASK, LIST_ANSWERED, LIST_READ, LISTS };
struct rules { /* views */
	char *of[LISTS][RULES_MAX + 1];
};

bool edge_record_id_valid(const char id[static 40])
{
	return strnlen(id, 40) == 36 && strspn(id, "0123456789abcdef-") == 36;
}

/* NUL-terminated texts one after the other; what is not of that form is no policy at all. */
static int split(const struct edge_policy *head, const char *text, size_t len, struct rules *ret)
{
	const uint32_t n[LISTS] = { head->n_allow, head->n_deny, head->n_ask, head->n_answered, head->n_read };
	const char *p = text, *end = text + len;

	*ret = (struct rules){ 0 };
	if (len && end[-1] != '\0')
		return -EINVAL;
	for (enum list k = LIST_ALLOW; k < LISTS; k++)
		for (size_t i = 0; i < n[k]; i++, p += strlen(p) + 1) {
			if (i == RULES_MAX || p >= end)
				return -EINVAL;
			ret->of[k][i] = (char *)(uintptr_t)p; /* only read */
		}
	return p == end ? 0 : -EINVAL;
}

static int parse(struct edge_record *r, const char *text)
{
	const struct edge_policy *head = &r->head;
	struct rules rules;
	struct err e;
	bool opened = head->op == EDGE_POLICY_OPEN;

	if (head->mode > NETWORK_ALLOW || split(head, text, head->text_len, &rules) < 0 || (opened && (head->n_deny || head->n_ask || head->n_answered || head->n_read)))
		return -EINVAL;
	int rc = policy_parse(opened ? NETWORK_ALLOW : (enum network_mode)head->mode, rules.of[LIST_ALLOW], rules.of[LIST_DENY], &r->policy, &e);
	if (rc == 0 && head->n_ask)
		rc = policy_parse(NETWORK_ALLOW, rules.of[LIST_ASK], rules.of[LIST_ANSWERED], &r->asked, &e);
	if (rc == 0 && head->n_read)
		rc = policy_parse(NETWORK_ALLOW, rules.of[LIST_READ], NULL, &r->read, &e);
	return rc < 0 ? -EINVAL : 0;
}

int edge_record_read(const char *bytes, size_t n, struct edge_record *ret)
{
	struct edge_record r = { 0 };

	if (n < sizeof r.head || n > sizeof r.head + EDGE_POLICY_TEXT_MAX)
		return -EBADMSG;
	memcpy(&r.head, bytes, sizeof r.head);
	if (r.head.magic != EDGE_MAGIC || !edge_record_id_valid(r.head.id) || r.head.text_len != n - sizeof r.head || r.head.op < EDGE_POLICY_SET ||
	    r.head.op > EDGE_POLICY_OPEN)
		return -EBADMSG;
	int rc = r.head.op == EDGE_POLICY_FORGET ? 0 : parse(&r, bytes + sizeof r.head);
	if (rc < 0)
		edge_record_done(&r);
	*ret = r;
	return rc;
}

void edge_record_done(struct edge_record *r)
{
	policy_done(&r->policy);
	policy_done(&r->asked);
	policy_done(&r->read);
}
