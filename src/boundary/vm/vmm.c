#include "boundary/vm/vmm.h"

#include "boundary/vm/vmdir.h"
#include "sys/process.h"

#include <stdio.h>
#include <unistd.h>
#include <errno.h>

char *vmm_record(pid_t pid)
{
	uint64_t ticks;
	char boot[37];

	if (process_start_time(pid, &ticks) < 0 || process_boot_id(boot) < 0)
		return NULL;
	return xasprintf("%d %llu %s", (int)pid, (unsigned long long)ticks, boot);
}

int vmm_find(const char *record, pid_t *ret_pid)
{
	char *end;
	long pid = strtol(record, &end, 10);

	if (end == record || *end != ' ' || pid <= 1 || pid > INT32_MAX)
		return -ESRCH;
	int pidfd = process_pidfd((pid_t)pid); /* before the comparison: from here on the number is not given away again */
	if (pidfd < 0)
		return -ESRCH;
	auto_free char *now = vmm_record((pid_t)pid);
	if (!now || !streq(now, record) || process_ended(pidfd)) {
		(void)close(pidfd);
		return -ESRCH;
	}
	*ret_pid = (pid_t)pid;
	return pidfd;
}

void vmm_end_unfinished(struct launcher *l, int dir)
{
	auto_free char *id = vmdir_read(dir, "id"); /* written before there was a process */

	if (id)
		l->kill(l, id, -EBADF);
}
