/* The warden: the only privileged process. Makes and unmakes sandboxes at the daemon's request and parses nothing else.
 *
 * Theory of operation. One thread, one epoll loop: the daemon's socket (records of wire/warden.h), a pidfd per running
 * sandbox, and a short tick for what the kernel finishes late (a group that is still busy, a disk that is being let go). A
 * create is done in one go, about two milliseconds; whatever can take longer is waited for by the loop or done by one of two
 * helpers (helper.h): children that make things in advance and take apart what is left of the dead.
 *
 * It ends when the daemon's socket closes and leaves the sandboxes running. What the next one must know is in
 * RUN/state/<id>, root-only, written atomically; a pid is believed only with its start time and the boot's id. */
#ifndef CAISSON_WARDEN_WARDEN_H
#define CAISSON_WARDEN_WARDEN_H

#include "base/log.h"

#include <sys/types.h>

struct warden_options {
	const char *images; /* folder of image/image.h; must exist */
	const char *data;   /* disks are in DATA/disks */
	const char *run;    /* NULL = /run/caisson/<data-id> (warden_run_folder) */
	const char *ranges; /* host-wide claims of uid ranges; NULL = /run/caisson/ranges */
	uid_t daemon_uid;   /* who may connect to the guests' sockets */
	gid_t daemon_gid;
	const void *guest; /* the guest's program */
	size_t guest_len;
	enum log_level log_level;
	char *const *edge; /* arguments of our own program that make it the edge, NULL-terminated; NULL = no sandbox has a network */
	unsigned spare_namespaces; /* made in advance; 0 = 16 */
	unsigned spare_disks;	   /* made in advance, of the size asked for last; 0 = 2 */
	bool end_all;		   /* the data folder is only for this life: at the daemon's end, destroy every sandbox */
	const char *vmm;	   /* QEMU; NULL = VMM_PROGRAM of wire/vmm.h */
	int machines;		   /* the vm boundary's door (wire/machine.h), as a descriptor that is taken; 0 = there is none */
	bool old_kernel;	   /* tests: do without what came after Linux 6.12 */
};

/* 16 hex digits that stand for a data folder on this host. The folder must exist. 0 or a negative errno. */
int warden_data_id(const char *data, char ret_id[static 17]);
/* Its default run folder ("/run/caisson/<data-id>"), heap; NULL when the data folder does not exist. */
char *warden_run_folder(const char *data);

/* Serves fd (one end of a SOCK_SEQPACKET pair) until the other end closes. Needs root; to be called early in a process of its
 * own (it changes mounts, securebits, session; the descriptors of inside.h become its own). fd is taken.
 * Returns the exit status; why it could not start goes to the daemon, too. */
int warden_main(int fd, const struct warden_options *options);

#endif
