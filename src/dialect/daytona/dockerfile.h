/* What of a Dockerfile can be had without building: the image it starts from and settings. Pure. */
#ifndef CAISSON_DIALECT_DAYTONA_DOCKERFILE_H
#define CAISSON_DIALECT_DAYTONA_DOCKERFILE_H

#include "model/spec.h"

struct dockerfile {
	char *image, *user, *workdir;
	struct pairs env;
};
/* FROM, ENV, USER and WORKDIR are taken, LABEL, EXPOSE, MAINTAINER and a CMD or ENTRYPOINT that only waits mean nothing
 * here; any other instruction is ERR_UNSUPPORTED and named. Fill *ret with zeros before; dockerfile_done() in any case. */
int dockerfile_parse(struct str text, struct dockerfile *ret, struct err *e);
void dockerfile_done(struct dockerfile *f);

#endif
