/* Questions of names that come by a connection to port 53, to whatever address: answered as datagrams are (name.c), one after the other. A
 * message has its length before it (two bytes); longer ones than a question can be end the connection. */
#include "egress/edge_int.h"

#include <errno.h>
#include <sys/socket.h>

#define QUESTION_MAX 512

struct ask {
	uint8_t in[2 + QUESTION_MAX];
	size_t n;
	struct lookup *waits_for;
	bool running;
};

void ask_begin(struct flow *f)
{
	f->ask = xcalloc(1, sizeof *f->ask);
}

void ask_waits(struct flow *f, struct lookup *l)
{
	f->ask->waits_for = l;
}

struct lookup *ask_lookup(const struct flow *f)
{
	return f->ask->waits_for;
}

void ask_answer(struct flow *f, const uint8_t *p, size_t n)
{
	uint8_t out[2 + DNS_TCP_MAX];

	out[0] = (uint8_t)(n >> 8);
	out[1] = (uint8_t)n;
	memcpy(out + 2, p, n);
	/* An answer is far smaller than what a socket takes: who lets so many pile up does not read. */
	if (send(f->client.fd, out, n + 2, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n + 2)
		flow_kill(f, true);
	else
		flow_ask_again(f);
}

int ask_read(int fd, uint8_t *in, size_t max, size_t *have)
{
	for (;;) {
		size_t len = *have < 2 ? 0 : (size_t)in[0] << 8 | in[1], want = *have < 2 ? 2 : 2 + len;
		if (len > max || (*have >= 2 && len == 0))
			return -EMSGSIZE;
		if (*have >= 2 && *have == want)
			return 1;
		ssize_t n = recv(fd, in + *have, want - *have, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return -ECONNRESET;
		*have += (size_t)n;
	}
}

/* Answers come from within (at once, or what failed at once): then it is not begun again but goes on. */
void ask_run(struct flow *f)
{
	struct ask *a = f->ask;
	int rc = 0;

	if (a->running)
		return;
	a->running = true;
	while (f->state == FLOW_ASK && !a->waits_for && (rc = ask_read(f->client.fd, a->in, QUESTION_MAX, &a->n)) > 0) {
		const struct asker who = { .flow = f };
		size_t n = a->n - 2;
		a->n = 0;
		if (!name_take(f->box, &who, a->in + 2, n))
			flow_kill(f, true); /* what gets no answer by datagrams: silence would be waited for */
	}
	a->running = false;
	if (rc < 0)
		flow_kill(f, rc == -EMSGSIZE);
}
