/* The system-call filter of every sandbox. What it says: seccomp-rules.h. */
#ifndef CAISSON_SYS_SECCOMP_H
#define CAISSON_SYS_SECCOMP_H

#include <linux/filter.h>
#include <stddef.h>

extern const struct sock_filter seccomp_program[];
extern const unsigned short seccomp_program_len;

/* Puts the calling thread behind it for good (needs no_new_privs). 0 or a negative errno. Safe on a shared address space. */
int seccomp_install(void);

#endif
