#include "dialect/ssh/lib.h"

#include "base/util.h"

#include <dlfcn.h>
#include <errno.h>

struct lib lib;

int lib_load(struct err *e)
{
	static const struct {
		const char *name;
		size_t offset;
	} functions[] = {
#define ENTRY(f) { #f, offsetof(struct lib, f) },
		LIB_FUNCTIONS(ENTRY)
#undef ENTRY
	};
	void *so = dlopen("libssh.so.4", RTLD_NOW | RTLD_LOCAL);

	if (!so)
		return err_set(e, ERR_UNAVAILABLE, ENOENT, "SSH needs the library libssh (Debian and Ubuntu: libssh-4): %s", dlerror());
	for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
		void *f = dlsym(so, functions[i].name);
		if (!f)
			return err_set(e, ERR_UNAVAILABLE, ENOSYS, "this libssh is too old: it has no %s", functions[i].name);
		memcpy((char *)&lib + functions[i].offset, &f, sizeof f);
	}
	return lib.ssh_init() < 0 ? err_set(e, ERR_UNAVAILABLE, EIO, "libssh cannot be initialised") : 0;
}
