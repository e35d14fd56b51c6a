/* An SFTP server (version 3, what every client speaks) on standard input and output, with the rights of whoever runs it. */
#ifndef CAISSON_GUEST_SFTP_H
#define CAISSON_GUEST_SFTP_H

int sftp_main(void); /* the exit code */

#endif
