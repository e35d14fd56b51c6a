/* What a sandbox reaches: the policy of its network and its rules about hosts (model/permission.h) as one policy. Pure.
 *
 *	deny host:T   beside what the network denies
 *	allow host:T  nothing but such, and what the network's own list names, is left of a "public" network; "allow" takes no such rule
 *	ask host:T    reached once somebody has said yes to the very name, which is then among host_answers
 *
 * T is the target of a rule of model/policy.h, ports and all. A denial wins, then a question. Rules about methods (model/method.h) reach nothing and
 * deny no host; but what is sent to those that they name is read. */
#ifndef CAISSON_MODEL_REACH_H
#define CAISSON_MODEL_REACH_H

#include "model/spec.h"

enum { HOST_ANSWERS_MAX = 64 };

struct reach {
	enum network_mode mode;
	char **allow, **deny; /* rules of model/policy.h; or NULL */
	char **ask;           /* the same: who they name is asked for, */
	char **answered;      /* but for these names */
	char **read;          /* the same: whose requests are read, and go nowhere unread */
};
void reach_of(const struct sandbox_spec *s, struct reach *ret);
void reach_done(struct reach *r);
/* ERR_INVALID: rules and mode that make no sense together, or too many. */
int reach_check(const struct sandbox_spec *s, struct err *e);
bool reach_has_hosts(char *const *permissions); /* there is a rule about hosts, or about methods */
bool reach_has_methods(char *const *permissions);
/* The targets of rules about methods, each once, in canonical form, appended to the list (NULL = empty). */
void reach_read(char *const *permissions, char ***list);
bool reach_asks(char *const *permissions);      /* of which somebody is asked */
/* The rule by which a canonical name has to be asked for; NULL = none. A view. */
const char *reach_asks_for(const struct sandbox_spec *s, const char *name);
/* "allow NAME" or "deny NAME", appended. */
void reach_answer(struct sandbox_spec *s, const char *name, bool allowed);

#endif
