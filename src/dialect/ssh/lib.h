/* libssh, loaded when SSH is asked for and not before: who does without it neither needs the library nor waits for it at each start.
 * Its functions are called as members of `lib`. */
#ifndef CAISSON_DIALECT_SSH_LIB_H
#define CAISSON_DIALECT_SSH_LIB_H

#include "base/err.h"

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>

#define LIB_FUNCTIONS(F)                                                                                                                             \
	F(ssh_init)                                                                                                                                  \
	F(ssh_new)                                                                                                                                   \
	F(ssh_free)                                                                                                                                  \
	F(ssh_disconnect)                                                                                                                            \
	F(ssh_set_blocking)                                                                                                                          \
	F(ssh_set_auth_methods)                                                                                                                      \
	F(ssh_set_server_callbacks)                                                                                                                  \
	F(ssh_handle_key_exchange)                                                                                                                   \
	F(ssh_get_poll_flags)                                                                                                                        \
	F(ssh_get_status)                                                                                                                            \
	F(ssh_get_error)                                                                                                                             \
	F(ssh_event_new)                                                                                                                             \
	F(ssh_event_free)                                                                                                                            \
	F(ssh_event_add_session)                                                                                                                     \
	F(ssh_event_dopoll)                                                                                                                          \
	F(ssh_set_message_callback)                                                                                                                  \
	F(ssh_message_type)                                                                                                                          \
	F(ssh_message_subtype)                                                                                                                       \
	F(ssh_message_channel_request_channel)                                                                                                       \
	F(ssh_set_log_level)                                                                                                                         \
	F(ssh_set_log_callback)                                                                                                                      \
	F(ssh_bind_new)                                                                                                                              \
	F(ssh_bind_free)                                                                                                                             \
	F(ssh_bind_options_set)                                                                                                                      \
	F(ssh_bind_accept_fd)                                                                                                                        \
	F(ssh_channel_new)                                                                                                                           \
	F(ssh_channel_free)                                                                                                                          \
	F(ssh_channel_poll)                                                                                                                          \
	F(ssh_channel_read_nonblocking)                                                                                                              \
	F(ssh_channel_write)                                                                                                                         \
	F(ssh_channel_write_stderr)                                                                                                                  \
	F(ssh_channel_send_eof)                                                                                                                      \
	F(ssh_channel_close)                                                                                                                         \
	F(ssh_channel_is_closed)                                                                                                                     \
	F(ssh_channel_window_size)                                                                                                                   \
	F(ssh_channel_request_send_exit_status)                                                                                                      \
	F(ssh_channel_request_send_exit_signal)                                                                                                      \
	F(ssh_set_channel_callbacks)                                                                                                                 \
	F(ssh_remove_channel_callbacks)                                                                                                              \
	F(ssh_key_free)                                                                                                                              \
	F(ssh_pki_generate)                                                                                                                          \
	F(ssh_pki_export_privkey_file)

struct lib {
#define MEMBER(f) __typeof__(f) *f;
	LIB_FUNCTIONS(MEMBER)
#undef MEMBER
};
extern struct lib lib;

int lib_load(struct err *e); /* ERR_UNAVAILABLE names the package */

#endif
