/* Shared by the parts of the vm boundary: the boundary and one sandbox's machine. */
#ifndef CAISSON_BOUNDARY_VM_VM_INT_H
#define CAISSON_BOUNDARY_VM_VM_INT_H

#include "boundary/vm/qemu.h"
#include "boundary/vm/template.h"
#include "boundary/vm/vm.h"
#include "wire/guest.h"

#include <uthash.h>

struct memory_files;
struct snapshot_meta;

struct vm {
	struct boundary base;
	struct boundary_ops ops;
	struct qemu_host qemu;
	bool tap;
	struct boundary *volumes; /* or NULL */
	char *data, *folder, *kernel;
	int initrd;
	uint64_t tsc_khz;
	struct templates *templates;
	struct machine *machines;
	struct taking *takings;  /* snapshot.h */
	struct dropping *droppings;
	struct memory *memories; /* memory.h */
	bool whole_told;         /* that memory could not be saved apart */
	bool closing;            /* whoever is told so may ask again, and is not to find a machine anew that was let go */
};

enum machine_state { MACHINE_WAITING, MACHINE_LAUNCHING, MACHINE_BOOTING, MACHINE_RUNNING, MACHINE_SYNCING, MACHINE_ENDING };

struct waiting {
	boundary_done_fn done;
	void *ctx;
};

struct machine {
	struct vm *vm;
	UT_hash_handle hh;
	char id[40];
	enum machine_state state;
	int dir;
	struct qemu *qemu;
	struct ask *ask;
	int client;                     /* a copy of what open_guest gave last */
	struct waiting start, stop, destroy;
	bool remove, ephemeral, paused, network;
	bool clearing;                  /* it begins when what may be left of a former daemon's has ended */
	bool unfinished;                /* a former daemon's, of no use: its end is told to nobody */
	struct machine *next;           /* begins when that one has ended (MACHINE_ENDING); not in the table until then */
	bool wakes;                     /* it is started where it was suspended, not from its disk */
	bool between;                   /* nobody can have left something half said on its line */
	struct taking *taking;          /* of a snapshot that holds it */
	struct offload *copy;           /* of the disk that it begins with, a template's or a snapshot's; and a look at what it goes on from */
	char template[TEMPLATE_KEY + 1]; /* what it is a copy of, until it has answered; else "" */
	int state_fd;                   /* of that template, or of a snapshot, until QEMU has it */
	int ram_fd;                     /* what its memory began as, for its life; negative where that is nothing, or not known any more */
	struct err why;                 /* of a start that has failed; kind 0 = QEMU has ended by itself */
	struct guest_setup setup;       /* strings ours */
	struct volume_mounts volumes;
	char line[GUEST_LINE_BYTES];    /* by which that of its volumes begins */
	struct resources resources;
	char *image;                    /* its digest */
};

/* machine.c */
struct machine *machine_find(const struct vm *v, const char *id);
/* dir is taken. In the table, or in the place of one that is ending: begins behind it. */
struct machine *machine_new(struct vm *v, const char *id, int dir);
void machine_take_spec(struct machine *m, const struct boundary_spec *s, bool goes_on); /* goes_on: its guest has been set up before, as itself or another */
/* Out of the table, and freed; tells nobody, and leaves QEMU alone. */
void machine_forget(struct machine *m);
/* From a template; m->start is told. May have told before it returns, and then the machine is gone. */
void machine_make(struct machine *m);
/* The same from a snapshot: its folder (taken), what its meta says, and its memory where that lies elsewhere (borrowed), or NULL. */
void machine_make_from(struct machine *m, int folder, const struct snapshot_meta *meta, const struct memory_files *apart);
/* From its own disk, or where it was suspended (wakes); m->start is told, as by machine_make. A process of a daemon that was killed before it had written
 * it down is ended first. */
void machine_begin(struct machine *m);
int machine_adopt(struct vm *v, const char *id); /* one that a former daemon has left running: 0 or a negative errno */
/* m->stop or m->destroy is told. */
void machine_stop(struct machine *m);
/* Has the guest write to its disk what it holds of it; one that is paused runs for that long. done: with m, which has to set m->ask to NULL. False: there is
 * no way to its guest. */
bool machine_sync(struct machine *m, boundary_done_fn done);
void machine_end_suspended(struct machine *m, struct waiting *told); /* told: taken */
void machine_tell(struct waiting *w, const struct err *e);
void machine_close_client(struct machine *m);

#endif
