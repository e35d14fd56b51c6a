/* A virtual machine's network device. */
#ifndef CAISSON_GUEST_VMNET_H
#define CAISSON_GUEST_VMNET_H

#include "wire/guest.h"

/* Once after boot, in the template too: addresses and routes, the same in every sandbox (wire/edge.h), and the device up. There is no link until
 * the host gives one, and until then they count for nothing. No device: 0. */
int vmnet_begin(void);
/* What a copy is told. `first`: the device is as vmnet_begin has left it; else it is as its tenant has. */
int vmnet_set(enum guest_link link, const uint8_t mac[static 6], bool first);

#endif
