/* Where the warden keeps things and what it holds open for its life. */
#ifndef CAISSON_WARDEN_PLACE_H
#define CAISSON_WARDEN_PLACE_H

#include "base/err.h"
#include "sys/netns.h"
#include "warden/stage.h"
#include "warden/warden.h"

#define PLACE_SUDO "/dev/.sudo" /* the program that stands for sudo, as sandboxes see it */

struct place {
	const struct warden_options *options;
	char name[17];	/* the data folder's id */
	char *run;	/* RUN */
	int run_fd;	/* locked: one warden a data folder */
	int state_fd;	/* RUN/state 0700 root */
	int sockets_fd; /* RUN/s 0710 root:daemon */
	int disks_fd;	/* DATA/disks 0700 root */
	int images_fd;
	struct netns_maker netns;
	struct stage stage;
	int guest_fd;	   /* sealed memory file */
	int dev_fd;	   /* the /dev every sandbox gets a clone of */
	bool layers_by_fd; /* the kernel takes detached mounts as overlay's layers */
	char boot_id[37];
};

/* Everything in order; on failure what was made stays for place_close. */
int place_set_up(struct place *p, const struct warden_options *options, struct err *e);
/* empty: no sandbox is left, so RUN goes as well. */
void place_close(struct place *p, bool empty);
char *place_state_folder(const struct place *p);

#endif
