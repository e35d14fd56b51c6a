/* The connection to a QEMU's monitor: moves the bytes of wire/qmp.h. */
#ifndef CAISSON_BOUNDARY_VM_MONITOR_H
#define CAISSON_BOUNDARY_VM_MONITOR_H

#include "wire/qmp.h"

#include <uv.h>

struct monitor;
/* fd: connected, non-blocking; taken. on_event as in qmp.h, or NULL. */
struct monitor *monitor_new(uv_loop_t *loop, int fd, qmp_event_fn on_event, void *ctx);
/* As qmp_call. After the connection has ended, the call fails at once. */
void monitor_call(struct monitor *m, const char *command, json_t *arguments, int fd, qmp_done_fn done, void *ctx);
/* What waits is told that it will not be answered. Not from within a callback of the monitor. */
void monitor_free(struct monitor *m);

#endif
