/* A plain WebSocket client. Part of a test program: included once, after daytona-server.h. */
#ifndef CAISSON_TESTS_DAYTONA_SOCKET_H
#define CAISSON_TESTS_DAYTONA_SOCKET_H

static int ws_open(const char *path, const char *headers)
{
	char head[2048];
	int fd = dial();
	int n = snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
	                                     "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n",
	                 path, port, headers);
	send_all(fd, head, (size_t)n);
	buf_done(&last.head);
	buf_init(&last.head, 65536);
	while (!last.head.len || !strstr(last.head.data, "\r\n\r\n")) {
		char c;
		assert_int_equal(recv(fd, &c, 1, 0), 1);
		buf_addc(&last.head, c);
	}
	last.status = atoi(last.head.data + 9);
	return fd;
}

static void ws_send(int fd, int opcode, const char *data)
{
	size_t n = strlen(data), head = n < 126 ? 6 : 8; /* with a mask of zeros */
	auto_free unsigned char *f = xcalloc(1, n + head);
	assert_true(n < 65536);
	f[0] = (unsigned char)(0x80 | opcode);
	f[1] = (unsigned char)(0x80 | (n < 126 ? n : 126));
	if (n >= 126) {
		f[2] = (unsigned char)(n >> 8);
		f[3] = (unsigned char)n;
	}
	memcpy(f + head, data, n);
	send_all(fd, f, n + head);
}

static bool recv_all(int fd, void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = recv(fd, (char *)p + at, n - at, 0);
		if (k <= 0)
			return false;
		at += (size_t)k;
	}
	return true;
}

/* The next message's opcode, or -1; appended to b. */
static int ws_next(int fd, struct buf *b)
{
	unsigned char h[2], ext[8];
	if (!recv_all(fd, h, 2))
		return -1;
	size_t n = h[1] & 127;
	if (n == 126) {
		assert_true(recv_all(fd, ext, 2));
		n = (size_t)ext[0] << 8 | ext[1];
	} else if (n == 127) {
		assert_true(recv_all(fd, ext, 8));
		n = (size_t)ext[4] << 24 | (size_t)ext[5] << 16 | (size_t)ext[6] << 8 | ext[7];
	}
	char *to = buf_reserve(b, n ? n : 1);
	assert_true(recv_all(fd, to, n));
	buf_grew(b, n);
	return h[0] & 15;
}

#endif
