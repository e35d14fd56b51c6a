/* A Dockerfile as a list of steps, and the settings that hold at its end. Pure.
 *
 * Taken: FROM (one), RUN, COPY and ADD of the context, ENV, ARG with a default, WORKDIR, USER, ENTRYPOINT, CMD. LABEL, EXPOSE,
 * MAINTAINER, STOPSIGNAL, HEALTHCHECK mean nothing here. Anything else is ERR_UNSUPPORTED and named. */
#ifndef CAISSON_DIALECT_DAYTONA_DOCKERFILE_H
#define CAISSON_DIALECT_DAYTONA_DOCKERFILE_H

#include "model/spec.h"

enum step_kind { STEP_RUN, STEP_COPY, STEP_ENV, STEP_ARG, STEP_WORKDIR, STEP_USER };
struct dockerfile_step {
	enum step_kind kind;
	char *line;       /* as written, in one line: for the log */
	char *text;       /* RUN in its shell form; the absolute directory of WORKDIR; the user of USER */
	char **argv;      /* RUN in its JSON form; COPY: sources, then the destination; NULL-terminated */
	char *chown;      /* COPY --chown, or NULL */
	struct pairs env; /* ENV, ARG: not yet expanded where they refer to what only the image knows */
};

#define DOCKERFILE_STEPS_MAX 1000

struct dockerfile {
	char *image, *user, *workdir;
	struct pairs env;     /* as known without the image: values may still refer to variables of it */
	struct dockerfile_step *steps;
	size_t n_steps;
	char **entrypoint, **cmd; /* or NULL */
	bool entrypoint_is_text;  /* a line for a shell, which takes no arguments */
	bool needs_build;     /* something has to be done inside, or asked of the image */
	bool needs_context;
};
/* Fill *ret with zeros before; dockerfile_done() in any case. */
int dockerfile_parse(struct str text, struct dockerfile *ret, struct err *e);
void dockerfile_done(struct dockerfile *f);
/* $NAME, ${NAME}, ${NAME:-word}, ${NAME:+word}, \$; what neither set knows is empty. second may be NULL. Heap; NULL when it gets too long. */
char *dockerfile_expand(const char *text, const struct pairs *first, const struct pairs *second);
/* What the image runs by itself: ENTRYPOINT, with CMD for its arguments. NULL: nothing, or what would only wait, which a sandbox does
 * without it. Heap. */
char **dockerfile_command(const struct dockerfile *f);
/* Is this the command of a container that only has to stay? */
bool command_only_waits(char *const *argv);

#endif
