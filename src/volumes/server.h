/* The server of a machine's volumes: a program of its own for each machine that has some, in a jail whose root holds these folders and
 * nothing else (warden/machine-files.c). It answers the requests of the machine's kernel (wire/fuse.h), every byte of which is the doing of
 * whoever has taken that machine.
 *
 * Theory of operation. One request at a time: read whole, done, answered. A request names an entry of a folder, never a path; what it leads to
 * is opened without following links (O_PATH) and kept under a number for as long as the machine's kernel remembers it. Files are opened
 * for reading and writing by way of that descriptor, so what was looked at is what is opened. The machine's kernel decides who may do what,
 * as it does with its disk; what is made belongs to whoever asked. What nobody may (to write to a volume that is mounted read-only, to
 * make a device, to leave the folder) is kept by the mounts, the system-call filter and the capabilities that the server runs with; it has no
 * more rights than root in a sandbox of the process boundary that has the same volume.
 *
 * It keeps its end when its line is closed, or when what comes on it is not the protocol. */
#ifndef CAISSON_VOLUMES_SERVER_H
#define CAISSON_VOLUMES_SERVER_H

#include "wire/fuse.h"

#define VOLUMES_ARGV0 "caisson-volumes"
enum {
	VOLUMES_LINE_FD = 3,
	VOLUMES_MAX = 8,
	/* Descriptors that it may hold, which bounds what it remembers: each pins a file's memory in the kernel, in all some 40 MiB of
	 * the machine's group. */
	VOLUMES_FILES_MAX = 32768,
};

/* argv: the name, the nonce as 32 hex digits, how many volumes. They are at /0, /1, ...; /proc is the kernel's. */
int volumes_main(int argc, char **argv);
/* The same on a line and folders of the caller's, until the line ends; files_max as above. 0, or a negative errno. */
int volumes_serve(int line, const char nonce[static LINE_NONCE], const int *roots, unsigned n, unsigned files_max);

#endif
