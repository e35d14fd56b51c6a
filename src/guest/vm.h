/* The guest as the first program of a virtual machine: /init of an initramfs that also has modules/NN-NAME.ko.
 *
 * Theory of operation. vm_boot does what every sandbox of an image has in common: modules, the image's read-only file system, the
 * serial port as descriptor 3. The rest comes with the frame SETUP. The first one lays the disk over the image and moves there, and until
 * then no run, session or op is taken; a template is saved behind such a one, with nothing else in it. Every later one, to each copy, tells what
 * makes it differ from the others: the kernel's randomness is reseeded before anything else, then clock, limit and names are set.
 *
 * The disks are told apart by serial number ("image", "disk"), the ports by their names ("guest", "volumes"): the order of devices says nothing. */
#ifndef CAISSON_GUEST_VM_H
#define CAISSON_GUEST_VM_H

#include "base/err.h"
#include "guest/guest.h"

#define VM_GROUP "/sys/fs/cgroup/runs" /* the control group of everything that runs, but for us and our workers */

/* argv[0] is "/init" and we are PID 1. */
bool vm_is_init(const char *arg0);
/* 0 or a negative errno; *ret_what: the step that failed. */
int vm_boot(const char **ret_what);
/* s's strings are copied where they are kept. */
int vm_setup(struct guest *g, const struct guest_setup *s, struct err *e);
/* Another descriptor of the serial port "volumes", which PID 1 holds from the start; non-blocking. -errno */
int vm_volumes_port(void);

#endif
