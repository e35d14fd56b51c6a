/* Templates: machines that have been booted once, up to where everything that follows differs between sandboxes, and are kept:
 * their memory, the state of their devices, their disk. A sandbox begins as a copy of one.
 *
 * A template fits one image, size, kernel, guest, QEMU, accelerator, processor and boot of the host; the hash over all that is its key, so one
 * that fits no longer is simply not found, and another is made. Making one takes a boot, and is done one at a time; who wants it waits.
 *
 * The memory is a file that every copy maps privately. QEMU opens it for writing all the same, and a copy that its tenant has taken over could
 * change what the others see: so it is a memory file that is sealed as soon as its maker has ended. So are state and disk: whatever becomes of
 * files on the host, no copy begins with it. FOLDER/KEY has what is needed to have all three again after a restart of the daemon, with a hash over
 * each: a damaged one is thrown away. */
#ifndef CAISSON_BOUNDARY_VM_TEMPLATE_H
#define CAISSON_BOUNDARY_VM_TEMPLATE_H

#include "boundary/vm/qemu.h"

struct template_host { /* what templates are made with; strings borrowed for the templates' life */
	const struct qemu_host *qemu;
	const char *kernel, *folder; /* folder: for what is kept of them; of this daemon alone */
	int initrd;
	bool kvm, kvm_only, tap;
	const char *no_kvm; /* why there is no KVM; NULL with kvm */
	uint64_t tsc_khz;
};

struct template_need {
	const char *image; /* digest */
	unsigned cpus;
	uint64_t memory_mib, disk_mib;
};

enum { TEMPLATE_KEY = 64, TEMPLATE_RAM = 0, TEMPLATE_STATE, TEMPLATE_DISK, TEMPLATE_FILES };
struct template_files {
	int fds[TEMPLATE_FILES]; /* memory files; sealed, but while they are made */
};

struct template {
	char key[TEMPLATE_KEY + 1];
	struct template_files files;
};

/* A KVM that is there need not be usable (nested ones are where that is seen): it is believed once a template has come up with it. If the
 * first does not, all are emulated from then on, and a note in the folder says so to the next daemon of this boot. With kvm_only it is
 * believed from the start, and a template that does not come up with it is a failure. */
struct templates;
struct templates *templates_new(const struct template_host *h);
void templates_free(struct templates *t); /* calls nobody */

/* done: once, perhaps before this returns; the template is valid during the call. */
typedef void (*template_fn)(void *ctx, const struct err *e, const struct template *);
void templates_get(struct templates *t, const struct template_need *need, template_fn done, void *ctx);
bool templates_kvm(const struct templates *t);    /* whether machines are to use it, as far as is known */
const char *templates_no_kvm(const struct templates *t); /* why not, in plain words; NULL when they are to */
bool templates_settled(const struct templates *t); /* that is known */
void templates_cancel(struct templates *t, void *ctx); /* the wait with that ctx */
/* A copy of it did not come to life: it is not used again. */
void templates_doubt(struct templates *t, const char *key);

/* Takes all that is stored of them away, and the folder; nobody may be using it. */
void templates_remove(const char *folder);

#endif
