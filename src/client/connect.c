/* Finding the server and the key: what the caller says, else the environment, else the data folder. */
#include "client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

const char *caisson_version(void)
{
	return CAISSON_VERSION;
}

const char *caisson_url(const struct caisson *c)
{
	return c->url;
}

static const char *env_or(const char *given, const char *name)
{
	if (given && *given)
		return given;
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

__attribute__((format(printf, 1, 2))) static char *text_of(const char *fmt, ...)
{
	char *p = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&p, fmt, ap) < 0)
		p = NULL;
	va_end(ap);
	return p;
}

static char *default_data(void)
{
	const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return strdup("/var/lib/caisson");
	if (xdg && *xdg == '/')
		return text_of("%s/caisson", xdg);
	return text_of("%s/.local/share/caisson", home && *home ? home : "");
}

static bool is_socket(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* The socket of a server with this data folder; the place where it should be when there is none. */
static char *find_socket(const char *data, bool data_is_default)
{
	char *in_data = text_of("%s/api.sock", data);
	const char *run = getenv("XDG_RUNTIME_DIR");
	char *in_run = NULL;

	if (!data_is_default)
		return in_data;
	if (geteuid() == 0)
		in_run = strdup("/run/caisson/api.sock");
	else if (run && *run == '/')
		in_run = text_of("%s/caisson/api.sock", run);
	if (in_run && (is_socket(in_run) || !is_socket(in_data))) {
		free(in_data);
		return in_run;
	}
	free(in_run);
	return in_data;
}

/* The key file's first word. *ret stays NULL when there is no file: the server will say that a key is needed. */
static int read_key(const char *data, char **ret, struct caisson_error *e)
{
	auto_free char *path = text_of("%s/api-key", data);
	char text[512];

	if (!path)
		return error_memory(e);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			return 0;
		return error_set(e, CAISSON_ERR_LOCAL, "can't read the API key in %s (%s): run as the server's user, or set CAISSON_API_KEY", path,
		                 strerror(errno));
	}
	ssize_t n = read(fd, text, sizeof text - 1);
	if (n < 0)
		return error_set(e, CAISSON_ERR_LOCAL, "can't read %s: %s", path, strerror(errno));
	text[n] = '\0';
	text[strcspn(text, " \t\r\n")] = '\0';
	if (*text && !(*ret = strdup(text)))
		return error_memory(e);
	return 0;
}

static int set_url(struct caisson *c, const char *url, struct caisson_error *e)
{
	if (strncmp(url, "unix:", 5) == 0) {
		const char *path = url + 5;
		while (path[0] == '/' && path[1] == '/')
			path++;
		if (*path != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
			return error_set(e, CAISSON_ERR_INVALID, "%s: a socket's path is absolute and shorter than 108 bytes", url);
		c->url = text_of("unix:%s", path);
		c->socket = strdup(path);
		c->base = strdup("http://localhost");
	} else if (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0) {
		size_t n = strlen(url);
		while (n && url[n - 1] == '/')
			n--;
		c->url = strndup(url, n);
		c->base = strndup(url, n);
	} else {
		return error_set(e, CAISSON_ERR_INVALID, "%s: a server's address is http://HOST:PORT, https://... or unix:/PATH", url);
	}
	return c->url && c->base && (c->socket || *url != 'u') ? 0 : error_memory(e);
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void init_curl(void)
{
	curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int open_handle(struct caisson *c, struct caisson_error *e)
{
	pthread_once(&curl_once, init_curl);
	if (curl_ready != CURLE_OK)
		return error_set(e, CAISSON_ERR_LOCAL, "libcurl: %s", curl_easy_strerror(curl_ready));
	c->curl = curl_easy_init();
	if (!c->curl || http_set_up(c) < 0)
		return error_memory(e);
	if (!c->key)
		return 0;
	for (const char *p = c->key; *p; p++)
		if (*p <= 0x20 || *p >= 0x7f)
			return error_set(e, CAISSON_ERR_INVALID, "the API key holds a character that no key has");
	auto_free char *line = text_of("Authorization: Bearer %s", c->key);
	c->auth = line ? curl_slist_append(NULL, line) : NULL;
	return c->auth ? 0 : error_memory(e);
}

/* A folder that the caller names beats the environment, which is about some other server. */
static int resolve_url(struct caisson *c, const struct caisson_connect_options *o, const char *data, bool data_is_default, struct caisson_error *e)
{
	const char *url = o->url && *o->url ? o->url : !o->data ? env_or(NULL, "CAISSON_URL") : NULL;

	if (url)
		return set_url(c, url, e);
	auto_free char *socket = find_socket(data, data_is_default), *found = socket ? text_of("unix:%s", socket) : NULL;
	return found ? set_url(c, found, e) : error_memory(e);
}

static int resolve_key(struct caisson *c, const struct caisson_connect_options *o, const char *data, struct caisson_error *e)
{
	bool folder_first = o->data && !o->url;
	const char *key = o->key && *o->key ? o->key : folder_first ? NULL : env_or(NULL, "CAISSON_API_KEY");

	/* The folder's key is for the folder's server: never sent to another machine. */
	if (!key && (c->socket || url_is_loopback(c->base))) {
		if (read_key(data, &c->key, e) < 0)
			return -1;
		if (c->key)
			return 0;
	}
	if (!key && folder_first)
		key = env_or(NULL, "CAISSON_API_KEY");
	if (!key)
		return 0; /* the server will say that one is needed */
	c->key = strdup(key);
	return c->key ? 0 : error_memory(e);
}

static int resolve(struct caisson *c, const struct caisson_connect_options *o, struct caisson_error *e)
{
	const char *given = env_or(o->data, "CAISSON_DATA");
	auto_free char *data = given ? realpath(given, NULL) : default_data();

	if (!data && given)
		data = strdup(given); /* not there (yet): the message will name it */
	if (!data)
		return error_memory(e);
	if (resolve_url(c, o, data, !given, e) < 0)
		return -1;
	return resolve_key(c, o, data, e);
}

int caisson_connect(const struct caisson_connect_options *o, struct caisson **ret, struct caisson_error *e)
{
	static const struct caisson_connect_options none;
	struct caisson *c = calloc(1, sizeof *c);

	if (!c)
		return error_memory(e);
	auto_exchange struct exchange x = { .method = "GET", .path = "/healthz" };
	if (resolve(c, o ? o : &none, e) < 0 || open_handle(c, e) < 0 || exchange_perform(c, &x, e) < 0) {
		caisson_close(c);
		return -1;
	}
	*ret = c;
	return 0;
}

int caisson_clone(const struct caisson *from, struct caisson **ret, struct caisson_error *e)
{
	struct caisson *c = calloc(1, sizeof *c);

	if (!c)
		return error_memory(e);
	c->url = strdup(from->url);
	c->base = strdup(from->base);
	c->socket = from->socket ? strdup(from->socket) : NULL;
	c->key = from->key ? strdup(from->key) : NULL;
	if (!c->url || !c->base || (from->socket && !c->socket) || (from->key && !c->key)) {
		caisson_close(c);
		return error_memory(e);
	}
	if (open_handle(c, e) < 0) {
		caisson_close(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void caisson_close(struct caisson *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->curl);
	curl_slist_free_all(c->auth);
	free_secret(c->key);
	free(c->url);
	free(c->base);
	free(c->socket);
	free(c);
}
