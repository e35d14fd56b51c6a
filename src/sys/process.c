#include "sys/process.h"

#include "sys/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The library's syscall() returns on the stack it was called on, which the child must not do: hence the instructions by hand.
 * fn and arg travel in registers that a system call keeps. */
static long clone_onto_stack(struct clone_args *args, size_t size, int (*fn)(void *), void *arg)
{
#ifdef __x86_64__
	long ret;
	register int (*r12)(void *) __asm__("r12") = fn;
	register void *r13 __asm__("r13") = arg;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t" /* outermost frame */
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n\t"
			 "1:"
			 : "=a"(ret)
			 : "a"((long)SYS_clone3), "D"(args), "S"(size), "r"(r12), "r"(r13), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory", "cc");
	return ret;
#elif defined __aarch64__
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = (long)size;
	register long x8 __asm__("x8") = SYS_clone3;
	register int (*x19)(void *) __asm__("x19") = fn;
	register void *x20 __asm__("x20") = arg;
	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, #0\n\t"
			 "mov x0, x20\n\t"
			 "blr x19\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc #0\n\t"
			 "1:"
			 : "+r"(x0)
			 : "r"(x1), "r"(x8), "r"(x19), "r"(x20), [exit] "i"(SYS_exit)
			 : "memory", "cc");
	return x0;
#else
#error "clone3 by hand is not written for this architecture yet"
#endif
}

pid_t process_clone(uint64_t flags, int cgroup_fd, void *stack, size_t stack_size, int (*fn)(void *arg), void *arg, uint32_t *gone,
		    int *ret_pidfd)
{
	int pidfd = -EBADF;
	struct clone_args args = {
		.flags = (unsigned long long)(flags | CLONE_VM | CLONE_PIDFD | (gone ? (uint64_t)CLONE_CHILD_CLEARTID : 0)) |
			 (cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0ULL),
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.child_tid = (uint64_t)(uintptr_t)gone,
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)stack,
		.stack_size = stack_size & ~(size_t)15,
		.cgroup = cgroup_fd >= 0 ? (unsigned)cgroup_fd : 0U,
	};
	long pid = clone_onto_stack(&args, sizeof args, fn, arg);

	if (pid < 0)
		return (pid_t)pid;
	*ret_pidfd = pidfd; /* close-on-exec by the kernel's rule */
	return (pid_t)pid;
}

int process_word_wait(uint32_t *word, uint32_t value, int timeout_ms)
{
	struct timespec t = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };

	/* Not the private kind: the kernel wakes the word of CLONE_CHILD_CLEARTID by the shared one. A spurious wake starts the time anew. */
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
		if (syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ms < 0 ? NULL : &t, NULL, 0) < 0 && errno == ETIMEDOUT)
			return -ETIMEDOUT;
	return 0;
}

void process_word_set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	(void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

int process_pidfd(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : fd;
}

int process_fd(int pidfd, int number)
{
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	return fd < 0 ? -errno : fd;
}

int process_signal(int pidfd, int signo)
{
	return syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0) < 0 ? -errno : 0;
}

bool process_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	return poll(&p, 1, 0) == 1;
}

int process_wait(int pidfd, int *ret_status)
{
	siginfo_t si = { 0 };

	while (waitid(P_PIDFD, (id_t)pidfd, &si, WEXITED) < 0)
		if (errno != EINTR)
			return -errno;
	*ret_status = si.si_code == CLD_EXITED ? si.si_status : -si.si_status;
	return 0;
}

void process_reap(int pidfd)
{
	siginfo_t si;
	(void)waitid(P_PIDFD, (id_t)pidfd, &si, WEXITED | WNOHANG); /* an adopted one is not our child: ECHILD */
}

int process_start_time(pid_t pid, uint64_t *ret_ticks)
{
	char path[40], text[1024];

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	ssize_t n = fs_read_at(AT_FDCWD, path, text, sizeof text);
	if (n < 0)
		return (int)n;
	const char *p = strrchr(text, ')'); /* field 2 may hold blanks and parentheses */
	for (int field = 2; p && field < 22; field++) {
		p = strchr(p, ' ');
		if (p)
			p++;
	}
	if (!p || *p < '0' || *p > '9')
		return -EIO;
	*ret_ticks = strtoull(p, NULL, 10);
	return 0;
}

int process_boot_id(char ret_text[static 37])
{
	ssize_t n = fs_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret_text, 37);
	return n == 36 ? 0 : n < 0 ? (int)n : -EIO;
}

static int only_be_there(void *arg)
{
	/* It shares our descriptors: should we be killed now, it must not keep locks, sockets and mounts alive. */
	(void)syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	while (syscall(SYS_getppid) == *(const pid_t *)arg)
		(void)syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	return 0;
}

int process_userns(uint32_t base, uint32_t count)
{
	/* A throw-away child that only holds the namespace while we write its maps and take a descriptor of it. */
	static char stack[16384] __attribute__((aligned(16)));
	int pidfd = -EBADF, status, fd = -EBADF;
	pid_t self = getpid();
	char path[40];
	/* Descriptors are shared because a copy of thousands costs more than all the rest. */
	pid_t pid = process_clone(CLONE_NEWUSER | CLONE_FILES, -1, stack, sizeof stack, only_be_there, &self, NULL, &pidfd);

	if (pid < 0)
		return (int)pid;
	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	int rc = fs_write_at_f(AT_FDCWD, path, "0 %u %u", base, count);
	if (rc == 0) {
		snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
		rc = fs_write_at_f(AT_FDCWD, path, "0 %u %u", base, count);
	}
	if (rc == 0) {
		snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			rc = -errno;
	}
	(void)process_signal(pidfd, SIGKILL);
	(void)process_wait(pidfd, &status);
	close_fd(pidfd);
	return rc < 0 ? rc : fd;
}
