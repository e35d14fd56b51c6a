/* Making one template: a disk, a boot, a save. */
#ifndef CAISSON_BOUNDARY_VM_BUILD_H
#define CAISSON_BOUNDARY_VM_BUILD_H

#include "boundary/vm/template.h"

struct build;
/* Either e, or the files, sealed, which are the callee's. */
typedef void (*built_fn)(void *ctx, const struct err *e, const struct template_files *);
/* dir: an empty folder, borrowed. The call comes later than this returns; none comes if it is NULL, with e. */
struct build *build_new(const struct template_host *h, const struct template_need *need, int dir, uint64_t boot_ms, built_fn done, void *ctx,
			struct err *e);
/* After the call, or instead of it. */
void build_free(struct build *b);

#endif
