/* A build from inside: for build.c, which carries it out, layer.c, which keeps what its steps made, and buildlog.c, which keeps what it says. */
#ifndef CAISSON_DIALECT_DAYTONA_BUILD_INT_H
#define CAISSON_DIALECT_DAYTONA_BUILD_INT_H

#include "dialect/daytona/build.h"

#define BUILD_LOG_MAX (4U << 20)

struct log_reader;
struct build {
	struct build *prev, *next;
	struct daytona *d;
	struct caller caller;
	char id[40];
	char *sandbox, *name; /* name: of the snapshot, or NULL */
	struct sandbox_spec spec;
	struct dockerfile f;
	json_t *extra;
	enum build_state state;
	struct err why;
	uint64_t created_ms, updated_ms;
	build_started_fn started;
	void *started_ctx;
	/* the way through the steps */
	size_t at;                /* steps done or under way */
	unsigned char (*keys)[32]; /* layer.c */
	size_t kept;              /* steps that the layer holds as which it begins */
	bool layers;              /* they are kept */
	unsigned layers_missed;   /* could not be kept */
	struct pairs base, env; /* of the image; of ENV */
	struct pairs args;	/* of ARG */
	const char *cwd, *user; /* of the step under way; they point into f */
	char *from_cwd;         /* of the snapshot that it begins as, or NULL */
	char **hashes;
	size_t hash;   /* context being brought in */
	unsigned part; /* of it */
	int part_fd;
	bool staged;
	char *run;
	struct follower *follower;
	bool following, run_ended;
	struct run_view end;
	char failure[200]; /* why the run could not begin */
	struct buf asked; /* what a question printed */
	bool asking;
	void (*after)(struct build *b); /* the run under way ended with 0 */
	struct api_op *op;
	struct buf log;
	struct log_reader *readers;
};

void build_next(struct build *b);
struct build *build_lookup(const struct daytona *d, const struct caller *c, const char *ref);

/* --- layer.c --- */
/* spec: of the sandbox to be made, which becomes that of a layer where there is one that fits. parent: what the image of FROM is now. */
void layers_begin(struct build *b, struct sandbox_spec *spec, const char *parent);
bool layer_due(const struct build *b); /* what the step just done has made is to be kept */
void layer_keep(struct build *b);      /* then build_next() */

/* --- buildlog.c --- */
void build_say(struct build *b, struct str text); /* what is too much is cut */
void build_log_end(struct build *b);              /* those who follow it get the end */

#endif
