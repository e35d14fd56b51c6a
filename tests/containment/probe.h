/* Shared by the parts of the probe. */
#ifndef CAISSON_TESTS_PROBE_H
#define CAISSON_TESTS_PROBE_H

void verdict(int ok, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void refused(const char *name, long rc); /* a call that must fail */
int write_file(const char *path, const char *text);

void probe_calls(void);
void probe_files(void);
void probe_processes(void);
void probe_network(int host_port, const char *host_abstract);

#endif
