#include "cli/copy.h"

#include "base/util.h"

char *copy_base_name(const char *path)
{
	size_t end = strlen(path);

	while (end && path[end - 1] == '/')
		end--;
	size_t begin = end;
	while (begin && path[begin - 1] != '/')
		begin--;
	char *name = xstrndup(path + begin, end - begin);
	if (*name && !streq(name, ".") && !streq(name, ".."))
		return name;
	free(name);
	return NULL;
}

bool copy_means_contents(const char *path)
{
	size_t n = strlen(path);

	return streq(path, ".") || (n >= 2 && streq(path + n - 2, "/."));
}

bool copy_name_is_safe(const char *name)
{
	return name && *name && !strchr(name, '/') && !streq(name, ".") && !streq(name, "..");
}

bool copy_link_is_safe(const char *target, unsigned depth)
{
	bool named = false; /* an ordinary component was seen */

	if (!*target || *target == '/')
		return false;
	while (*target) {
		size_t n = strcspn(target, "/");
		if (n == 2 && memcmp(target, "..", 2) == 0) {
			if (named || depth-- == 0)
				return false;
		} else if (n > 0 && !(n == 1 && *target == '.')) {
			named = true;
		}
		target += n;
		target += strspn(target, "/");
	}
	return true;
}
