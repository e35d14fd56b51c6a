/* What templates depend on, and how they lie on the disk. Private to template.c. */
#ifndef CAISSON_BOUNDARY_VM_TEMPLATE_INT_H
#define CAISSON_BOUNDARY_VM_TEMPLATE_INT_H

#include "boundary/vm/template.h"
#include "boundary/vm/transfer.h"

/* All that a template depends on and that does not change while we run, as text. Heap. */
char *template_fixed(const struct template_host *h);
/* A hash over that, QEMU's program and the kernel, which may be replaced while we run. Heap. */
char *template_host_sum(const struct template_host *h, const char *fixed);
struct vmm_plan template_plan(const struct template_host *h, const struct template_need *n);
void template_key(const struct template_host *h, const char *fixed, const struct template_need *n, char ret_key[static TEMPLATE_KEY + 1]);

extern const char *const template_names[TEMPLATE_FILES]; /* under which they are stored */
struct template_sums {
	char v[TRANSFER_FILES][TRANSFER_SUM + 1];
};
/* The file "meta" of a template's folder, which is written last. */
int template_meta_write(int dir, const struct template_need *n, const char *host, const struct template_sums *s);
/* need's image and host: heap. -EBADMSG when it is not what was written. */
int template_meta_read(int dir, struct template_need *ret_need, char **ret_host, struct template_sums *ret_sums);

void template_folder_remove(const char *path); /* also when there is none */
/* Ends and removes what is unfinished, removes what is of another host; what those were made for is told, once each. */
void template_sweep(const struct template_host *h, const char *folder, const char *host, void (*outdated)(void *ctx, const struct template_need *n), void *ctx);

/* The note that KVM did not work in this boot. */
bool template_no_kvm(const struct template_host *h);
void template_no_kvm_write(const struct template_host *h);

int template_seal(int fd); /* -EBUSY while somebody has it mapped for writing */
struct template_files template_no_files(void);
/* New ones, of those sizes in bytes; all of them or a negative errno. */
int template_files_make(struct template_files *f, const uint64_t sizes[static TEMPLATE_FILES]);
int template_files_seal(const struct template_files *f);
void template_files_close(struct template_files *f);

#endif
