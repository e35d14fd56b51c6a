/* main() of a fuzz target in a normal build: every file given, or every file of a folder given, goes through it once. */
#include "base/util.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	FILE *f = fopen(path, "rbe");
	struct stat st;
	if (!f || fstat(fileno(f), &st) < 0) {
		fprintf(stderr, "can't read %s\n", path);
		return -1;
	}
	/* Exactly as long as the input, so that a sanitizer sees a read behind its end. */
	size_t n = (size_t)st.st_size;
	auto_free uint8_t *bytes = xmalloc(n ? n : 1);
	size_t got = fread(bytes, 1, n, f);
	fclose(f);
	if (got != n)
		return -1;
	LLVMFuzzerTestOneInput(bytes, n);
	printf("ok %s\n", path);
	return 0;
}

static int replay_folder(const char *path)
{
	struct dirent **found;
	int n = scandir(path, &found, NULL, alphasort), r = n < 0 ? -1 : 0;
	for (int i = 0; i < n; i++) {
		auto_free struct dirent *d = found[i];
		auto_free char *file = xasprintf("%s/%s", path, d->d_name);
		if (d->d_name[0] != '.' && replay(file) < 0)
			r = -1;
	}
	if (n >= 0)
		free(found);
	return r;
}

int main(int argc, char **argv)
{
	int r = argc > 1 ? 0 : -1;
	for (int i = 1; i < argc; i++) {
		struct stat st;
		bool folder = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode);
		if ((folder ? replay_folder(argv[i]) : replay(argv[i])) < 0)
			r = -1;
	}
	return r < 0;
}
