/* Builds: the steps of a Dockerfile, each carried out inside a sandbox. Either the sandbox is what was asked for (a create with
 * buildInfo), or a snapshot of it is (snapshot.create), and it goes afterwards. */
#ifndef CAISSON_DIALECT_DAYTONA_BUILD_H
#define CAISSON_DIALECT_DAYTONA_BUILD_H

#include "dialect/daytona/dockerfile.h"
#include "dialect/daytona/internal.h"

enum build_state { BUILD_RUNNING, BUILD_DONE, BUILD_FAILED };

struct build_view {
	const char *id;   /* of the sandbox, or of the build until its snapshot is there */
	const char *name; /* of the snapshot, or NULL */
	enum build_state state;
	const char *error; /* FAILED: why */
	uint64_t created_ms, updated_ms;
	const struct sandbox_spec *spec;
	const json_t *extra; /* of the snapshot */
};

/* Creates the sandbox of the spec and goes on with the steps; both are taken, and left empty. started is told when the sandbox is there or
 * why not: on a failure there is no build. snapshot: the name of what is to come of it, or NULL; extra (taken): kept with it. */
typedef void (*build_started_fn)(void *ctx, const struct err *e, const struct sandbox_view *v);
void build_start(struct daytona *d, const struct caller *c, struct sandbox_spec *spec, struct dockerfile *f, char **hashes, const char *snapshot,
                 json_t *extra, build_started_fn started, void *ctx);
void build_forget_starter(struct daytona *d, void *ctx); /* started is not called any more; the build goes on */

/* The caller's build of this sandbox, or with this id or snapshot name. False: there is none (any more). */
bool build_find(struct daytona *d, const struct caller *c, const char *ref, struct build_view *ret);
/* Is an image being built in this sandbox, whose record says so? Its first events come before the build is told of it: then, too. */
bool build_in_sandbox(const struct daytona *d, const char *id);
bool build_under_way(const struct daytona *d, const struct caller *c, const char *name); /* of this snapshot, also when it has only just begun */
/* Ends the one of a snapshot; done is told when its sandbox is gone. False: none is under way, and nothing will be told. */
bool build_cancel(struct daytona *d, const struct caller *c, const char *ref, api_done_fn done, void *ctx);
void build_each(struct daytona *d, const struct caller *c, void (*each)(void *ctx, const struct build_view *v), void *ctx);
bool build_dismiss(struct daytona *d, const struct caller *c, const char *ref); /* forgets an ended one: true when there was one */
/* Those that an earlier server left under way: they have failed, and the sandboxes of snapshots go. */
void builds_resume(struct daytona *d);
void builds_done(struct daytona *d);

/* {"dockerfileContent", ...} as the clients send it. */
int build_info(const json_t *info, struct dockerfile *f, char ***hashes, const char **text, struct err *e);
json_t *build_info_json(const char *text, const char *ref);

#endif
