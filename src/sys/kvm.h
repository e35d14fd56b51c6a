/* What this host's KVM says of itself. Whether a machine gets anywhere with it is another question: one that is nested may make machines
 * that never come up, so that is found out by booting one (boundary/vm/template.h). */
#ifndef CAISSON_SYS_KVM_H
#define CAISSON_SYS_KVM_H

#include "base/err.h"

#define KVM_DEVICE "/dev/kvm"

/* Its descriptor, or ERR_UNAVAILABLE with why there is none, in plain words: no device, no right to it, no module behind it, something else. Cheap. */
int kvm_open(const char *path, struct err *e);
/* 0 when it also makes a machine, an empty one that is gone again. Some milliseconds. */
int kvm_probe(const char *path, struct err *e);
/* What to do about that errnum. */
const char *kvm_advice(int errnum);

#endif
