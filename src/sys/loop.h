/* Loop devices: a file as a disk. */
#ifndef CAISSON_SYS_LOOP_H
#define CAISSON_SYS_LOOP_H

/* Binds the file to a free device that lets go by itself once nobody has it open (so: mount it, then close the descriptor).
 * Returns the device's descriptor and number, or a negative errno (-ENODEV: the host has no loop devices). */
int loop_attach(int file_fd, unsigned *ret_number);
/* Is a device with this number bound to a file now, and is that file this one (device and inode)? 1, 0 or a negative errno. */
int loop_is_bound(unsigned number, int file_fd);
/* The device that is bound to this file; -ENOENT: there is none. */
int loop_find(int file_fd, unsigned *ret_number);

#endif
