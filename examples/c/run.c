/* Runs a command in a fresh sandbox: cc run.c $(pkg-config --cflags --libs libcaisson) && ./a.out python3 -c 'print(6*7)' */
#include <caisson.h>
#include <stdio.h>

static int print(void *ctx, int stream, const void *bytes, size_t n)
{
	(void)ctx;
	return fwrite(bytes, 1, n, stream == CAISSON_STDERR ? stderr : stdout) != n;
}

int main(int argc, char **argv)
{
	struct caisson *c;
	struct caisson_sandbox *box = NULL;
	struct caisson_run *run = NULL;
	struct caisson_error e;
	int code = 125;

	if (argc < 2 || caisson_connect(NULL, &c, &e) < 0) {
		fprintf(stderr, "%s\n", argc < 2 ? "usage: run COMMAND [ARG...]" : e.message);
		return code;
	}
	const struct caisson_run_options o = { .argv = (const char *const *)argv + 1, .on_output = print };
	if (caisson_create(c, NULL, &box, &e) < 0 || caisson_run(c, box->id, &o, &run, &e) < 0)
		fprintf(stderr, "%s\n", e.message);
	else
		code = run->exit_code;
	if (box && caisson_delete(c, box->id, &e) < 0)
		fprintf(stderr, "%s\n", e.message);
	caisson_run_free(run);
	caisson_sandbox_free(box);
	caisson_close(c);
	return code;
}
