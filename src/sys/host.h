/* What this host has at most, for whoever asks for limits. */
#ifndef CAISSON_SYS_HOST_H
#define CAISSON_SYS_HOST_H

#include "base/err.h"

/* 0 when that much memory and processor is there at all, used or not; else ERR_INVALID that says how much there is. */
int host_has(uint64_t memory_mib, uint64_t cpu_millis, struct err *e);

#endif
