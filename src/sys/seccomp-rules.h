/* What a process in a sandbox, a jailed QEMU, and a server of volumes may ask of the kernel. Included by the generator (seccomp-gen.c), which turns it into a program at
 * build time, and by the test, which compares that program with libseccomp's answer for every number.
 *
 * Verdicts: a listed number is allowed, or allowed under a rule on its arguments. A number up to SYSCALL_KNOWN_MAX that is not
 * listed is refused with EPERM; a later one, which nobody here has judged, is ENOSYS, so that a libc falls back. Nothing kills but
 * a foreign entry (i386, x32), which would bypass the numbers.
 *
 * Left out on purpose: mount family, unshare, setns, bpf, perf, io_uring, userfaultfd, keyrings, *_by_handle_at, fanotify, kexec,
 * modules, reboot, swap, acct, syslog, clocks, quota, iopl/ioperm, modify_ldt, kcmp, host names, lsm and mount queries. */
#ifndef CAISSON_SYS_SECCOMP_RULES_H
#define CAISSON_SYS_SECCOMP_RULES_H

#include <asm/unistd.h>

/* Newer than the oldest headers we build with; the same on every architecture. */
#ifndef __NR_process_mrelease
#define __NR_process_mrelease 448
#endif
#ifndef __NR_futex_waitv
#define __NR_futex_waitv 449
#endif
#ifndef __NR_set_mempolicy_home_node
#define __NR_set_mempolicy_home_node 450
#endif
#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_map_shadow_stack
#define __NR_map_shadow_stack 453
#endif
#ifndef __NR_futex_wake
#define __NR_futex_wake 454
#endif
#ifndef __NR_futex_wait
#define __NR_futex_wait 455
#endif
#ifndef __NR_futex_requeue
#define __NR_futex_requeue 456
#endif
#ifndef __NR_mseal
#define __NR_mseal 462
#endif
#ifndef __NR_setxattrat
#define __NR_setxattrat 463
#endif
#ifndef __NR_getxattrat
#define __NR_getxattrat 464
#endif
#ifndef __NR_listxattrat
#define __NR_listxattrat 465
#endif
#ifndef __NR_removexattrat
#define __NR_removexattrat 466
#endif

#define SYSCALL_KNOWN_MAX 469 /* file_getattr 468, file_setattr 469: the last ones judged (Linux 6.17) */

/* X(name): allowed whatever the arguments. */
#define SECCOMP_ALLOWED_COMMON(X)                                                                                              \
	X(accept) X(accept4) X(bind) X(brk) X(cachestat) X(capget) X(capset) X(chdir) X(chroot) X(clock_getres)                \
	X(clock_gettime) X(clock_nanosleep) X(close) X(close_range) X(connect) X(copy_file_range) X(dup) X(dup3)               \
	X(epoll_create1) X(epoll_ctl) X(epoll_pwait) X(epoll_pwait2) X(eventfd2) X(execve) X(execveat) X(exit) X(exit_group)   \
	X(faccessat) X(faccessat2) X(fadvise64) X(fallocate) X(fchdir) X(fchmod) X(fchmodat) X(fchmodat2) X(fchown)            \
	X(fchownat) X(fcntl) X(fdatasync) X(fgetxattr) X(flistxattr) X(flock) X(fremovexattr) X(fsetxattr) X(fstat) X(fstatfs) \
	X(fsync) X(ftruncate) X(futex) X(futex_requeue) X(futex_wait) X(futex_waitv) X(futex_wake) X(get_mempolicy)            \
	X(get_robust_list) X(getcpu) X(getcwd) X(getdents64) X(getegid) X(geteuid) X(getgid) X(getgroups) X(getitimer)         \
	X(getpeername) X(getpgid) X(getpid) X(getppid) X(getpriority) X(getrandom) X(getresgid) X(getresuid) X(getrlimit)      \
	X(getrusage) X(getsid) X(getsockname) X(getsockopt) X(gettid) X(gettimeofday) X(getuid) X(getxattr) X(getxattrat)      \
	X(inotify_add_watch) X(inotify_init1) X(inotify_rm_watch) X(io_cancel) X(io_destroy) X(io_getevents)                   \
	X(io_pgetevents) X(io_setup) X(io_submit) X(ioprio_get) X(ioprio_set) X(kill) X(landlock_add_rule)                     \
	X(landlock_create_ruleset) X(landlock_restrict_self) X(lgetxattr) X(linkat) X(listen) X(listxattr) X(listxattrat)      \
	X(llistxattr) X(lremovexattr) X(lseek) X(lsetxattr) X(madvise) X(map_shadow_stack) X(mbind) X(membarrier)              \
	X(memfd_create) X(mincore) X(mkdirat) X(mlock) X(mlock2) X(mlockall) X(mmap) X(mprotect) X(mq_getsetattr)              \
	X(mq_notify) X(mq_open) X(mq_timedreceive) X(mq_timedsend) X(mq_unlink) X(mremap) X(mseal) X(msgctl) X(msgget)         \
	X(msgrcv) X(msgsnd) X(msync) X(munlock) X(munlockall) X(munmap) X(nanosleep) X(newfstatat) X(openat) X(openat2)        \
	X(pidfd_getfd) X(pidfd_open) X(pidfd_send_signal) X(pipe2) X(pkey_alloc) X(pkey_free) X(pkey_mprotect) X(ppoll)        \
	X(prctl) X(pread64) X(preadv) X(preadv2) X(prlimit64) X(process_madvise) X(process_mrelease) X(process_vm_readv)       \
	X(process_vm_writev) X(pselect6) X(ptrace) X(pwrite64) X(pwritev) X(pwritev2) X(read) X(readahead) X(readlinkat)       \
	X(readv) X(recvfrom) X(recvmmsg) X(recvmsg) X(remap_file_pages) X(removexattr) X(removexattrat) X(renameat)            \
	X(renameat2) X(restart_syscall) X(rseq) X(rt_sigaction) X(rt_sigpending) X(rt_sigprocmask) X(rt_sigqueueinfo)          \
	X(rt_sigreturn) X(rt_sigsuspend) X(rt_sigtimedwait) X(rt_tgsigqueueinfo) X(sched_get_priority_max)                     \
	X(sched_get_priority_min) X(sched_getaffinity) X(sched_getattr) X(sched_getparam) X(sched_getscheduler)                \
	X(sched_rr_get_interval) X(sched_setaffinity) X(sched_setattr) X(sched_setparam) X(sched_setscheduler) X(sched_yield)  \
	X(seccomp) X(semctl) X(semget) X(semop) X(semtimedop) X(sendfile) X(sendmmsg) X(sendmsg) X(sendto)                     \
	X(set_mempolicy) X(set_mempolicy_home_node) X(set_robust_list) X(set_tid_address) X(setfsgid) X(setfsuid) X(setgid)    \
	X(setgroups) X(setitimer) X(setpgid) X(setpriority) X(setregid) X(setresgid) X(setresuid) X(setreuid) X(setrlimit)     \
	X(setsid) X(setsockopt) X(setuid) X(setxattr) X(setxattrat) X(shmat) X(shmctl) X(shmdt) X(shmget) X(shutdown)          \
	X(sigaltstack) X(signalfd4) X(socketpair) X(splice) X(statfs) X(statx) X(symlinkat) X(sync) X(sync_file_range)         \
	X(syncfs) X(sysinfo) X(tee) X(tgkill) X(timer_create) X(timer_delete) X(timer_getoverrun) X(timer_gettime)             \
	X(timer_settime) X(timerfd_create) X(timerfd_gettime) X(timerfd_settime) X(times) X(tkill) X(truncate) X(umask)        \
	X(uname) X(unlinkat) X(utimensat) X(vmsplice) X(wait4) X(waitid) X(write) X(writev)

#ifdef __x86_64__
#define SECCOMP_ALLOWED_ARCH(X)                                                                                                \
	X(access) X(alarm) X(arch_prctl) X(chmod) X(chown) X(creat) X(dup2) X(epoll_create) X(epoll_wait) X(eventfd) X(fork)   \
	X(futimesat) X(getdents) X(getpgrp) X(inotify_init) X(lchown) X(link) X(lstat) X(mkdir) X(open) X(pause) X(pipe)       \
	X(poll) X(readlink) X(rename) X(rmdir) X(select) X(signalfd) X(stat) X(symlink) X(time) X(unlink) X(utime) X(utimes)   \
	X(vfork)
#else
#define SECCOMP_ALLOWED_ARCH(X)
#endif
#define SECCOMP_ALLOWED(X) SECCOMP_ALLOWED_COMMON(X) SECCOMP_ALLOWED_ARCH(X)

/* A jailed QEMU gets the same filter less what it has no use for: other processes, sockets other than those it inherits, names in file
 * systems, System V and POSIX queues, who it is. execve stays, by which it begins (its own -sandbox takes that away); clone makes
 * threads only. All of it beside QEMU's own filter, which comes later and is QEMU's to make. */
#define SECCOMP_VMM_REFUSED_COMMON(X)                                                                                          \
	X(bind) X(capset) X(chroot) X(connect) X(copy_file_range) X(execveat) X(fchmod) X(fchmodat) X(fchmodat2) X(fchown)     \
	X(fchownat) X(fremovexattr) X(fsetxattr) X(inotify_add_watch) X(inotify_init1) X(inotify_rm_watch) X(io_cancel)        \
	X(io_destroy) X(io_getevents) X(io_pgetevents) X(io_setup) X(io_submit) X(ioprio_set) X(kill)                          \
	X(landlock_add_rule) X(landlock_create_ruleset) X(landlock_restrict_self) X(linkat) X(lremovexattr)                    \
	X(lsetxattr) X(mkdirat) X(mknodat) X(mq_getsetattr) X(mq_notify) X(mq_open) X(mq_timedreceive) X(mq_timedsend)         \
	X(mq_unlink) X(msgctl) X(msgget) X(msgrcv) X(msgsnd) X(personality) X(pidfd_getfd) X(pidfd_open)                       \
	X(pidfd_send_signal) X(process_madvise) X(process_mrelease) X(process_vm_readv) X(process_vm_writev) X(ptrace)         \
	X(removexattr) X(removexattrat) X(renameat) X(renameat2) X(rt_sigqueueinfo) X(sched_setattr) X(sched_setparam)         \
	X(sched_setscheduler) X(semctl) X(semget) X(semop) X(semtimedop) X(sendfile) X(setfsgid) X(setfsuid) X(setgid)         \
	X(setgroups) X(setpgid) X(setpriority) X(setregid) X(setresgid) X(setresuid) X(setreuid) X(setsid) X(setuid)           \
	X(setxattr) X(setxattrat) X(shmat) X(shmctl) X(shmdt) X(shmget) X(socket) X(socketpair) X(splice) X(symlinkat)         \
	X(sync) X(syncfs) X(tee) X(tkill) X(truncate) X(unlinkat) X(utimensat) X(vmsplice)
#ifdef __x86_64__
#define SECCOMP_VMM_REFUSED_ARCH(X)                                                                                            \
	X(chmod) X(chown) X(creat) X(fork) X(futimesat) X(inotify_init) X(lchown) X(link) X(mkdir) X(mknod) X(rename) X(rmdir) \
	X(symlink) X(unlink) X(utime) X(utimes) X(vfork)
#else
#define SECCOMP_VMM_REFUSED_ARCH(X)
#endif
#define SECCOMP_VMM_REFUSED(X) SECCOMP_VMM_REFUSED_COMMON(X) SECCOMP_VMM_REFUSED_ARCH(X)
#define SECCOMP_CLONE_THREAD 0x00010000u /* without it -> EPERM */

/* The server of a machine's volumes, a program of ours: what it calls and what its libc does for it, and nothing else. Names in file systems
 * only as it uses them; mknodat by the sandboxes' rule. execveat is how it begins. */
#define SECCOMP_VOLUMES_ALLOWED_COMMON(X)                                                                                      \
	X(brk) X(clock_gettime) X(close) X(execveat) X(exit) X(exit_group) X(fallocate) X(fchmodat) X(fchownat) X(fcntl)       \
	X(fdatasync) X(flock) X(fstat) X(fstatfs) X(fsync) X(ftruncate) X(getdents64) X(getegid) X(geteuid) X(getrlimit)       \
	X(linkat) X(lseek) X(madvise) X(mkdirat) X(mmap) X(mprotect) X(mremap) X(munmap) X(newfstatat) X(openat) X(ppoll)      \
	X(pread64) X(prlimit64) X(pwrite64) X(read) X(readlinkat) X(recvfrom) X(renameat2) X(restart_syscall) X(rt_sigaction)  \
	X(rt_sigprocmask) X(rt_sigreturn) X(sendto) X(set_tid_address) X(setfsgid) X(setfsuid) X(symlinkat) X(umask)           \
	X(unlinkat) X(utimensat) X(write) X(writev)
#ifdef __x86_64__
#define SECCOMP_VOLUMES_ALLOWED_ARCH(X) X(arch_prctl) X(open) X(poll)
#else
#define SECCOMP_VOLUMES_ALLOWED_ARCH(X)
#endif
#define SECCOMP_VOLUMES_ALLOWED(X) SECCOMP_VOLUMES_ALLOWED_COMMON(X) SECCOMP_VOLUMES_ALLOWED_ARCH(X)

/* X(request): of its tap a QEMU sets offloads and sizes. What would change the device for others, keep it when QEMU has gone, look into its namespace or
 * give it a program is not its business. Names of linux/if_tun.h and linux/sockios.h. */
#define SECCOMP_VMM_IOCTL_REFUSED(X)                                                                                           \
	X(TUNSETDEBUG) X(TUNSETIFF) X(TUNSETPERSIST) X(TUNSETOWNER) X(TUNSETLINK) X(TUNSETGROUP) X(TUNSETTXFILTER)                \
	X(TUNATTACHFILTER) X(TUNDETACHFILTER) X(TUNSETQUEUE) X(TUNSETIFINDEX) X(TUNSETSTEERINGEBPF) X(TUNSETFILTEREBPF)          \
	X(TUNSETCARRIER) X(TUNGETDEVNETNS) X(SIOCSIFHWADDR)

/* The rules on arguments compare the low 32 bits: that is what the kernel looks at, and a 64-bit compare is passed by setting a
 * high bit (CVE-2019-10063). */
#define SECCOMP_CLONE_REFUSED 0x7e020000u /* NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET -> EPERM */
#define SECCOMP_TIOCSTI 0x5412u           /* -> EPERM */
#define SECCOMP_TIOCLINUX 0x541cu         /* -> EPERM */
#define SECCOMP_NO_RANDOMIZE 0x0040000u   /* personality(): besides 0 and 0xffffffff */
/* clone3 cannot be judged (its flags are in memory): ENOSYS, and every libc falls back to clone.
 * socket: UNIX, INET, INET6, NETLINK with protocol ROUTE. Another netlink protocol is EPROTONOSUPPORT (PAM takes EPERM on the
 * audit socket for an error of the system, and `su` breaks), another family EAFNOSUPPORT.
 * mknod, mknodat: regular files and fifos; not the 0/0 device, which is overlayfs's whiteout. */

#endif
