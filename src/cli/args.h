/* Command-line arguments: options as a table, read one after the other.
 *
 *   struct args a;
 *   args_init(&a, cli, argc, argv, false);
 *   for (int o; (o = args_next(&a)) > 0;) switch (o) { case OPT_NAME: name = a.value; break; ... }
 *   if (a.leave) return a.exit_code;
 *   ... a.operands, a.n_operands ...
 *   args_done(&a);
 *
 * "--name VALUE", "--name=VALUE", "-n VALUE", "-nVALUE", "-it" and "--" are understood. --json, --url, --data and --help
 * are known everywhere and stored in the struct cli. */
#ifndef CAISSON_CLI_ARGS_H
#define CAISSON_CLI_ARGS_H

#include "cli/cli.h"

struct option_spec {
	int id;            /* > 0; 0 ends the table */
	char letter;       /* 0 = none */
	const char *name;  /* without the dashes */
	const char *value; /* what the option's value is called in the help; NULL = takes none */
	const char *help;
};

struct args {
	struct cli *cli;
	char **operands;   /* NULL-terminated */
	int n_operands;
	const char *value; /* of the option just returned */
	bool leave;        /* help was shown or usage was wrong: return exit_code */
	int exit_code;
	/* private: */
	char **argv_;
	int argc_, at_;
	const char *cluster_;
	bool stop_;
};

/* stop: everything from the first operand on is operands, also what begins with a dash (a command and its arguments). */
void args_init(struct args *a, struct cli *cli, int argc, char **argv, bool stop);
/* A --json that stands behind what is wrong holds for how that is said, too. args_init has looked. */
void args_json_ahead(int argc, char **argv, bool stop);
int args_next(struct args *a); /* an option's id, or 0 at the end or when leaving */
void args_done(struct args *a);
#define auto_args __attribute__((cleanup(args_done)))

/* Checks the number of operands, and that none is empty (of a command with words of its own: the first); on a wrong one says what is expected and returns false with leave set. max -1 = any. */
bool args_count(struct args *a, int min, int max);

/* --- values; each returns false after a message, with leave set --- */
bool args_u64(struct args *a, const char *option, uint64_t min, uint64_t max, uint64_t *ret);
bool args_duration(struct args *a, const char *option, uint64_t *ret_ms); /* "30", "1.5s", "500ms", "10m", "2h", "1d" */
/* Of the next two, min and max are for the message: a number outside is the server's to refuse, which knows its limits best. */
bool args_mib(struct args *a, const char *option, uint64_t min, uint64_t max, uint64_t *ret); /* "512", "512m", "2g", "1t": MiB */
bool args_double(struct args *a, const char *option, double min, double max, double *ret);

/* NAME=VALUE pairs that an option collects. */
struct pair_list {
	struct caisson_pair *v;
	size_t n;
};
/* from_environment: "NAME" alone takes the value of this process, and is left out when there is none. */
bool args_pair(struct args *a, const char *option, bool from_environment, struct pair_list *list);
void pair_list_add(struct pair_list *l, const char *key, size_t key_len, const char *value); /* copies */
void pair_list_done(struct pair_list *l);
#define auto_pair_list __attribute__((cleanup(pair_list_done)))

/* Prints the table of options, aligned; used by the help. */
void args_print_options(const struct option_spec *options);
extern const struct option_spec args_common[];

#endif
