/* Git inside a sandbox: a call is one git command or a few, run one after another as the sandbox's user. Arguments go to git as
 * they are, never through a shell. Private to git*.c and its tests. */
#ifndef CAISSON_DIALECT_DAYTONA_GIT_H
#define CAISSON_DIALECT_DAYTONA_GIT_H

#include "dialect/daytona/execution.h"

/* --- gitrun.c: the steps of a call --- */

#define GIT_STEPS_MAX 4
struct git_step {
	char **argv; /* heap, NULL-terminated */
	size_t n;
	char *input; /* stdin, or NULL */
	int ok_exit; /* besides 0; -1 = none */
	const char *ok_text; /* with ok_exit: only when stderr says this */
	int skip;    /* further steps to leave out when this one exits with 0 */
};
struct git_call {
	struct execution x; /* first */
	const char *verb;   /* for listings: "git VERB" is all that is shown and kept of a command */
	char *cwd;          /* NULL = the sandbox's */
	char *username, *password; /* or NULL: for the remote */
	char *origin;       /* whom they are for: "https://host:port"; NULL = nobody */
	size_t address_steps; /* steps in front that find it out */
	bool insecure_tls;
	struct git_step step[GIT_STEPS_MAX];
	size_t n_steps, at;
	int status;         /* of an answer without a body */
	/* Reads the output of step `at`; NULL: not needed. Fills g->reply by the last. < 0: what git printed is nonsense. */
	int (*read)(struct git_call *g, struct str out);
	json_t *reply;      /* the answer's body, or NULL */
};
struct git_call *git_call_new(struct daytona *d, struct request *r, const char *verb, int status);
/* One more command, `git ARGS...`. */
#define git_step_add(g, ...) git_step_of(g, (const char *const[]){ __VA_ARGS__, NULL })
struct git_step *git_step_of(struct git_call *g, const char *const *args);
void git_arg(struct git_step *s, const char *text);
void git_args(struct git_step *s, char *const *texts);
void git_start(struct git_call *g);

/* --- gitorigin.c --- */

/* "scheme://host[:port]" of an address, as git writes it when it asks for credentials; heap, NULL when it has none. */
char *git_origin(struct str url);
/* Before the steps of a push or pull that has credentials: finds out whom they are for. remote NULL = as git would choose. */
void git_find_origin(struct git_call *g, bool push, const char *remote);

/* --- gitread.c: what git prints, which is the sandbox's word and may be anything --- */

/* All return 0, or -EBADMSG for what no git prints. *ret is a new object or array. */
int git_read_status(struct str out, json_t **ret);   /* of status --porcelain=v2 --branch -z */
int git_read_branches(struct str out, json_t **ret); /* names, each with a NUL behind it */
int git_read_remotes(struct str out, json_t **ret);  /* of config --null --get-regexp */
int git_read_history(struct str out, json_t **ret);  /* hash, author, mail, time, message, each with a NUL behind it */
int git_read_hash(struct str out, json_t **ret);     /* one object name in a line */

/* Which status and code fit what git said, told by its text (LC_ALL=C). */
void git_classify(const char *text, int *ret_status, const char **ret_code);
/* The text for the client: without hints, without the secret, without what stands before the @ of a URL. Heap. */
char *git_message(struct str text, const char *secret);

#endif
