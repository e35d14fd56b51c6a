/* The guest as the first program of a virtual machine: /init of an initramfs that also has modules/NN-NAME.ko.
 *
 * Theory of operation. vm_boot does what every sandbox of an image has in common: modules, the image's read-only file system, the
 * serial port as descriptor 3. At that point memory can be saved as a template. Everything that makes one sandbox differ from the next
 * comes with the frame SETUP, again for each clone: vm_setup reseeds the kernel's randomness before anything else, sets clock and
 * names, and the first time lays the sandbox's own disk over the image and moves there. Until then no run, session or op is taken.
 *
 * The disks are told apart by serial number ("image", "disk"), the port by its name ("guest"): the order of devices says nothing. */
#ifndef CAISSON_GUEST_VM_H
#define CAISSON_GUEST_VM_H

#include "guest/guest.h"

/* argv[0] is "/init" and we are PID 1. */
bool vm_is_init(const char *arg0);
/* 0 or a negative errno; *ret_what: the step that failed. */
int vm_boot(const char **ret_what);
/* The same; s's strings are copied where they are kept. */
int vm_setup(struct guest *g, const struct guest_setup *s, const char **ret_what);

#endif
