/* A run whose end is the answer: process/execute, process/code-run, a synchronous session command. */
#ifndef CAISSON_DIALECT_DAYTONA_EXECUTION_H
#define CAISSON_DIALECT_DAYTONA_EXECUTION_H

#include "dialect/daytona/internal.h"

struct execution {
	struct call call;
	struct run_spec spec;
	struct collector output;
	char *run;
	struct follower *follower;
	bool following, ended; /* api_run_follow is on the stack; the end came */
	struct run_view end;   /* with end.message = message */
	char message[200];
	void (*answer)(struct execution *x); /* the run has ended: answers with x->end and x->output, which frees x */
};
struct execution *execution_new(struct daytona *d, struct request *r, bool want_marked, void (*answer)(struct execution *x));
/* x->spec is filled. */
void execution_start(struct execution *x);
/* Ends that are no result: answers and returns true for a run that was lost with its sandbox or ran out of time. */
bool execution_failed(struct execution *x);

#endif
