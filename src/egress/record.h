/* What the daemon tells the edge of one sandbox (wire/edge.h), read. Pure. */
#ifndef CAISSON_EGRESS_RECORD_H
#define CAISSON_EGRESS_RECORD_H

#include "model/policy.h"
#include "wire/edge.h"

struct edge_record {
	struct edge_policy head;
	struct policy policy; /* of EDGE_POLICY_OPEN: the names that are opened */
	struct policy asked, read; /* model/reach.h; without rules their mode is NETWORK_NONE */
};
/* 0; -EBADMSG: no record at all, and *ret is untouched; -EINVAL: one whose rules cannot be read: only its head is there. */
int edge_record_read(const char *bytes, size_t n, struct edge_record *ret);
void edge_record_done(struct edge_record *r);
bool edge_record_id_valid(const char id[static 40]);

#endif
