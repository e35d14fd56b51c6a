/* What an operator lets a sandbox's network be at most. Pure. */
#ifndef CAISSON_MODEL_CEILING_H
#define CAISSON_MODEL_CEILING_H

#include "model/policy.h"

#define CEILING_DENY_MAX POLICY_OPERATOR_MAX

struct ceiling {
	enum network_mode mode; /* no sandbox gets more: NETWORK_NONE < NETWORK_ALLOW < NETWORK_PUBLIC */
	/* Of mode NETWORK_ALLOW: each rule of a sandbox's must lie within one of these; NULL: they are its own business. The texts are valid. */
	char **allow;
	char **deny; /* rules that hold for every sandbox, above its own; or NULL */
	struct network_limits limits; /* 0 = none */
};
/* The lists: form. ERR_INVALID, which names the option. */
int ceiling_valid(const struct ceiling *c, struct err *e);
/* 0, or ERR_DENIED, which says what is too much and what may be. The rules are valid ones. */
int ceiling_permits(const struct ceiling *c, enum network_mode mode, char *const *allow, const struct network_limits *limits, struct err *e);
/* What was not asked for is what there may be at most; what is above that (of a sandbox that was made under another ceiling) is brought down. */
void ceiling_limit(const struct ceiling *c, struct network_limits *limits);
/* The limits by name, of the texts that people give: "bytes_per_second=1000000". ERR_INVALID. */
int limit_parse(struct str text, struct network_limits *to, struct err *e);

#endif
