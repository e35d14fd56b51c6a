/* The system-call filters of every sandbox, of every QEMU and of every server of volumes. What they say: seccomp-rules.h. */
#ifndef CAISSON_SYS_SECCOMP_H
#define CAISSON_SYS_SECCOMP_H

#include <linux/filter.h>
#include <stddef.h>

extern const struct sock_filter seccomp_program[];
extern const unsigned short seccomp_program_len;
extern const struct sock_filter seccomp_vmm_program[];
extern const unsigned short seccomp_vmm_program_len;
extern const struct sock_filter seccomp_volumes_program[];
extern const unsigned short seccomp_volumes_program_len;

/* Puts the calling thread behind it for good (needs no_new_privs). 0 or a negative errno. Safe on a shared address space. */
int seccomp_install(void);
int seccomp_install_vmm(void);
int seccomp_install_volumes(void);

#endif
