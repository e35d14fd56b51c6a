#include "contract.h"
#include "vm_host.h"

#include <stdio.h>

static struct vm_host host;

static struct boundary *open_vm(uv_loop_t *loop, const char **skip)
{
	static struct err e;
	struct boundary *b = vm_host_open(&host, loop, &e);

	if (!b)
		*skip = e.message;
	return b;
}

static void close_vm(struct boundary *b)
{
	vm_host_close(&host, b);
}

int main(void)
{
	int rc = vm_host_init(&host);

	if (rc != 0)
		return rc;
	/* emulated, on a busy host, everything takes several times as long */
	rc = contract_run(&(struct contract_kind){ .name = "vm", .open = open_vm, .close = close_vm, .image_digest = host.digest,
						   .exact_trees = true, .own_files = true, .patience = 10 });
	return vm_host_done(&host) ? rc : 1;
}
