/* The user's terminal: raw while a command with a terminal of its own runs, and never left that way. */
#ifndef CAISSON_CLI_TTY_H
#define CAISSON_CLI_TTY_H

#include <stdbool.h>
#include <stdint.h>

/* Raw mode on fd; remembered and undone by tty_restore(), at exit(), and by a crash of ours. False: not a terminal. */
bool tty_raw(int fd);
/* Raw again, after somebody else (a stop and a continue) changed it. Does nothing unless tty_raw() is in force. */
void tty_raw_again(void);
void tty_restore(void); /* async-signal-safe; may be called any number of times */
/* The size of the terminal on stdin, stdout or stderr; false when none of them is one. */
bool tty_size(uint16_t *ret_rows, uint16_t *ret_cols);

#endif
