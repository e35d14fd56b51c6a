/* Making one template: a disk, a boot, a save. */
#ifndef CAISSON_BOUNDARY_VM_BUILD_H
#define CAISSON_BOUNDARY_VM_BUILD_H

#include "boundary/vm/template.h"

struct build;
/* Either e, or the two memory files, sealed, which are the callee's; the disk is the file "disk" of the folder. */
typedef void (*built_fn)(void *ctx, const struct err *e, int ram, int state);
/* dir: an empty folder, borrowed. The call comes later than this returns. */
struct build *build_new(const struct template_host *h, const struct template_need *need, const char *path, int dir, uint64_t boot_ms, built_fn done,
			void *ctx);
/* After the call, or instead of it. */
void build_free(struct build *b);

#endif
