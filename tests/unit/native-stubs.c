/* What the native dialect refers to and test-native.c never reaches: calling one is a failed test. */
#include <stdio.h>
#include <stdlib.h>

#define NEVER(name)                                                   \
	void name(void);                                              \
	void name(void)                                               \
	{                                                             \
		(void)fputs(#name " was called unexpectedly\n", stderr); \
		abort();                                              \
	}

NEVER(api_image_get)
NEVER(api_image_list)
NEVER(api_image_remove)
NEVER(api_info)
NEVER(api_key_create)
NEVER(api_key_list)
NEVER(api_key_revoke)
NEVER(api_op_cancel)
NEVER(api_op_eof)
NEVER(api_op_open)
NEVER(api_op_pause)
NEVER(api_op_resume)
NEVER(api_op_room)
NEVER(api_op_write)
NEVER(api_run_close_stdin)
NEVER(api_run_list)
NEVER(api_run_resize)
NEVER(api_run_signal)
NEVER(api_run_write)
NEVER(api_sandbox_delete)
NEVER(api_sandbox_pause)
NEVER(api_sandbox_resume)
NEVER(api_sandbox_set_env)
NEVER(api_sandbox_set_labels)
NEVER(api_sandbox_set_lifetime)
NEVER(api_sandbox_start)
NEVER(api_sandbox_stop)
NEVER(api_sandbox_touch)
NEVER(api_sandbox_usage)
NEVER(api_session_create)
NEVER(api_session_delete)
NEVER(api_session_get)
NEVER(api_session_list)
NEVER(api_subscribe)
NEVER(proxy_upstream_data)
NEVER(proxy_upstream_eof)
NEVER(proxy_upstream_failed)
NEVER(proxy_upstream_open)
NEVER(proxy_upstream_room)
NEVER(req_accept_websocket)
NEVER(req_body_pause)
NEVER(req_body_resume)
NEVER(req_is_websocket)
NEVER(req_proxy)
NEVER(req_raw_query)
NEVER(req_read_body)
NEVER(socket_close)
NEVER(socket_pause)
NEVER(socket_resume)
NEVER(socket_room)
NEVER(socket_send)
NEVER(subscription_free)
