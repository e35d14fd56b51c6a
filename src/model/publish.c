#include "model/publish.h"

#include <errno.h>
#include <stdio.h>

static int not_one(struct str text, struct err *e)
{
	return err_set(e, ERR_INVALID, EINVAL, "publish: %s is not [ADDRESS:][HOST_PORT:]PORT, such as 8080:80 or [::1]:8080:80; a port is 1 to 65535",
	               str_quote(text, &(struct quoted){ 0 }));
}

static int read_port(struct str text, uint16_t *ret)
{
	uint64_t n;

	if (parse_u64(text, 65535, &n) < 0 || n == 0)
		return -EINVAL;
	*ret = (uint16_t)n;
	return 0;
}

/* What is behind the last colon; `rest` is what stands before it, without p when there is no colon. */
static struct str last_part(struct str text, struct str *rest)
{
	size_t at = text.n;

	while (at > 0 && text.p[at - 1] != ':')
		at--;
	*rest = at ? (struct str){ text.p, at - 1 } : (struct str){ NULL, 0 };
	return (struct str){ text.p + at, text.n - at };
}

static int read_address(struct str text, struct addr *ret)
{
	bool bracket = text.n > 2 && text.p[0] == '[' && text.p[text.n - 1] == ']';

	if (bracket)
		text = (struct str){ text.p + 1, text.n - 2 };
	if (addr_parse(text, ret) < 0)
		return -EINVAL;
	return bracket == (ret->family == 6) ? 0 : -EINVAL; /* else its last group could be a port */
}

int publication_parse(struct str text, struct publication *ret, struct err *e)
{
	struct publication p = { 0 };
	struct str rest, more = { NULL, 0 };
	struct addr a;
	char address[ADDR_TEXT_MAX] = PUBLISH_ADDRESS_DEFAULT;
	struct str port = last_part(text, &rest), host = rest.p ? last_part(rest, &more) : rest;

	if (read_port(port, &p.port) < 0 || (rest.p && read_port(host, &p.host_port) < 0) || (more.p && read_address(more, &a) < 0))
		return not_one(text, e);
	if (more.p)
		addr_format(&a, address);
	p.address = xstrdup(address);
	*ret = p;
	return 0;
}

const char *publication_format(const struct publication *p, char ret_text[static PUBLISH_TEXT_MAX])
{
	const char *address = p->address ? p->address : PUBLISH_ADDRESS_DEFAULT;
	bool v6 = strchr(address, ':');

	snprintf(ret_text, PUBLISH_TEXT_MAX, "%s%.45s%s:%u:%u", v6 ? "[" : "", address, v6 ? "]" : "", p->host_port, p->port);
	return ret_text;
}

/* A valid one's. */
static struct addr address_of(const struct publication *p)
{
	struct addr a = { 0 };

	(void)addr_parse(str_of(p->address ? p->address : PUBLISH_ADDRESS_DEFAULT), &a);
	return a;
}

bool publication_same_place(const struct publication *a, const struct publication *b)
{
	struct addr one = address_of(a), other = address_of(b);

	return a->host_port && a->host_port == b->host_port && addr_eq(&one, &other);
}

int publications_validate(const struct publications *p, struct err *e)
{
	struct addr a;

	if (p->n > PUBLISH_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "publish: %zu; at most %d ports of a sandbox can be published", p->n, PUBLISH_MAX);
	for (size_t i = 0; i < p->n; i++) {
		const struct publication *one = &p->v[i];
		if (one->port == 0)
			return err_set(e, ERR_INVALID, EINVAL, "publish: port: give the port inside, 1 to 65535");
		if (one->address && addr_parse(str_of(one->address), &a) < 0)
			return err_set(e, ERR_INVALID, EINVAL, "publish: address: %s is not an address, such as 127.0.0.1 or ::1",
			               str_quote(str_of(one->address), &(struct quoted){ 0 }));
		for (size_t k = 0; k < i; k++)
			if (publication_same_place(&p->v[k], one))
				return err_set(e, ERR_CONFLICT, EADDRINUSE, "publish: two ports of the sandbox are to be at %u of this host", one->host_port);
	}
	return 0;
}
