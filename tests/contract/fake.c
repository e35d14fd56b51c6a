#include "contract.h"

#include "boundary/fake/fake.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static char dir[] = "/tmp/caisson-contract-XXXXXX";
static bool made;

static struct boundary *open_fake(uv_loop_t *loop, const char **skip)
{
	const char *guest = getenv("CAISSON_TEST_GUEST");
	struct err e;

	if (!made && !mkdtemp(dir))
		abort();
	made = true;
	struct boundary *b = boundary_fake_new(loop, dir, guest ? guest : GUEST_PATH, &e);
	if (!b)
		*skip = "no fake boundary";
	return b;
}

static void close_fake(struct boundary *b)
{
	b->ops->free(b);
}

static void done(void)
{
	if (rmdir(dir) < 0) {
		fprintf(stderr, "something is left in %s\n", dir);
		exit(1);
	}
}

int main(void)
{
	return contract_run(&(struct contract_kind){ .name = "fake", .open = open_fake, .close = close_fake, .done = done });
}
