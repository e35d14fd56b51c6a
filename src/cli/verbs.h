/* What `stop` and `start` share: one call for each sandbox named. */
#ifndef CAISSON_CLI_VERBS_H
#define CAISSON_CLI_VERBS_H

#include "cli/cli.h"

typedef int (*sandbox_verb)(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e);
int verb_run(struct cli *cli, int argc, char **argv, sandbox_verb verb);

#endif
