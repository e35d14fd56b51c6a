/* The opener as a process of its own (egress/opener.h). */
#ifndef CAISSON_BIN_OPENER_H
#define CAISSON_BIN_OPENER_H

int opener_command(int argc, char **argv);

#endif
