/* The vm boundary's door into the warden: what comes through it (wire/machine.h) is validated here and carried out. */
#ifndef CAISSON_WARDEN_MACHINE_REQUEST_H
#define CAISSON_WARDEN_MACHINE_REQUEST_H

#include "warden/serve.h"

/* Its socket has something. False: the other end is closed. */
bool machine_request_take(struct warden *w);

#endif
