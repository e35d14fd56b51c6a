/* A run whose end is the answer: process/execute, process/code-run, a synchronous session command, each step of a git call. */
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
	void (*drop)(struct execution *x);   /* or NULL: what a larger struct around this one holds */
};
struct execution *execution_new(struct daytona *d, struct request *r, bool want_marked, void (*answer)(struct execution *x));
/* For a struct of that size whose first member is the execution; the rest is zero. */
void *execution_new_sized(size_t size, struct daytona *d, struct request *r, bool want_marked, void (*answer)(struct execution *x));
/* Inside answer(), instead of an answer: spec and output as new, for the next run of the same call. */
void execution_again(struct execution *x);
/* x->spec is filled. */
void execution_start(struct execution *x);
/* Ends that are no result: answers and returns true for a run that was lost with its sandbox or ran out of time. */
bool execution_failed(struct execution *x);

#endif
