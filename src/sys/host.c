#include "sys/host.h"

#include <errno.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define MIB (1024ULL * 1024)

int host_has(uint64_t memory_mib, uint64_t cpu_millis, struct err *e)
{
	struct sysinfo si;
	unsigned long long cpus = (unsigned long long)MAX(1, sysconf(_SC_NPROCESSORS_ONLN));

	if (sysinfo(&si) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "read the memory's size");
	unsigned long long memory = (unsigned long long)si.totalram * si.mem_unit / MIB;
	if (memory_mib > memory)
		return err_set(e, ERR_INVALID, ENOMEM, "a memory limit of %llu MiB is more than this host has (%llu MiB)", (unsigned long long)memory_mib, memory);
	if (cpu_millis > cpus * 1000)
		return err_set(e, ERR_INVALID, EINVAL, "a limit of %.3g cpus is more than this host has (%llu)", (double)cpu_millis / 1000, cpus);
	return 0;
}
