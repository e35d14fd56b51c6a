/* The bare side of what is measured of machines: the same template, kernel, guest and command line of QEMU, started by fork and exec, with no jail,
 * no daemon. */
#ifndef CAISSON_BENCH_BARE_VM_H
#define CAISSON_BENCH_BARE_VM_H

#include "base/util.h"

struct bare_vm;
/* The template of that memory in a folder of templates, its image's file system, a folder for disk and sockets. Dies when there is none. */
struct bare_vm *bare_vm_new(const char *templates, const char *images, uint64_t memory_mib, bool kvm, const char *dir);
/* From before the fork to the guest's answer, in milliseconds; it runs then. set_up: to its answer to what a create tells it (randomness, clock, names). */
double bare_vm_restore(struct bare_vm *b, bool set_up);
double bare_vm_run(struct bare_vm *b, const char *const *argv);    /* in it */
void bare_vm_end(struct bare_vm *b);                               /* it runs no more */
void bare_vm_free(struct bare_vm *b);

#endif
