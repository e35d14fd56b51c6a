/* What commands share: one call for each sandbox named; one request of the native API. */
#ifndef CAISSON_CLI_VERBS_H
#define CAISSON_CLI_VERBS_H

#include "cli/cli.h"

#include <jansson.h>

typedef int (*sandbox_verb)(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e);
int verb_run(struct cli *cli, int argc, char **argv, sandbox_verb verb);

/* One request of the native API; on success *ret is the parsed answer, the caller's (ret NULL: not wanted). The exit code. */
int verb_ask(struct cli *cli, const char *method, const char *path, const char *body, json_t **ret);

#endif
