/* What commands share: one call for each sandbox named; one request of the native API; a collection of it listed, or some of it deleted. */
#ifndef CAISSON_CLI_VERBS_H
#define CAISSON_CLI_VERBS_H

#include "cli/args.h"
#include "cli/out.h"

#include <jansson.h>

typedef int (*sandbox_verb)(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e);
int verb_run(struct cli *cli, int argc, char **argv, sandbox_verb verb);

/* One request of the native API; on success *ret is the parsed answer, the caller's (ret NULL: not wanted). The exit code. */
int verb_ask(struct cli *cli, const char *method, const char *path, const char *body, json_t **ret);

/* Says on standard error that another image stands in for the one that was asked for, if that is so. */
void verb_say_stand_in(const struct cli *cli, struct caisson *c, const char *image);

/* A collection of the native API, as a table. row adds one item of it. */
struct listing {
	const char *path;
	const char *const *headings;
	size_t n;
	void (*row)(struct table *t, const json_t *item);
};
int verb_list(struct cli *cli, int argc, char **argv, const struct listing *l); /* the whole of an `ls` */
int verb_show(struct cli *cli, json_t *take_items, const struct listing *l);	/* an answer that has the items; the exit code */

/* The whole of a command with operands: `method` of path/OPERANDverb ("" or such as "/pause"), one after the other. Prints the operands, or as
 * JSON a list of that name, of the answers where there is a verb, else of the operands. */
int verb_each(struct cli *cli, int argc, char **argv, const char *method, const char *path, const char *verb, const char *list);
/* The same of arguments that have been read. */
int verb_operands(struct cli *cli, struct args *a, const char *method, const char *path, const char *verb, const char *list);
int verb_remove(struct cli *cli, int argc, char **argv, const char *path, const char *list); /* that, of an `rm ID...` */

const char *text_of(const json_t *o, const char *key); /* NULL when it is no string */

#endif
