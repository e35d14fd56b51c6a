/* Reads what git prints. A program named git in a sandbox may print anything, so nothing is taken on trust: a field that is
 * missing or of another shape makes the whole answer unreadable. */
#include "dialect/daytona/git.h"

#include <ctype.h>
#include <errno.h>

#define RECORDS_MAX LIST_MAX

/* Cuts the text up to the next `end` off *rest; false when there is none. */
static bool cut(struct str *rest, char end, struct str *ret)
{
	const char *p = rest->n ? memchr(rest->p, end, rest->n) : NULL;
	if (!p)
		return false;
	*ret = (struct str){ rest->p, (size_t)(p - rest->p) };
	rest->n -= ret->n + 1;
	rest->p = p + 1;
	return true;
}

static bool starts(struct str s, const char *with)
{
	size_t n = strlen(with);
	return s.n >= n && memcmp(s.p, with, n) == 0;
}

static struct str after(struct str s, size_t n)
{
	return (struct str){ s.p + n, s.n - n };
}

/* --- status --- */

static const char *word_of(char c)
{
	switch (c) {
	case '.':
		return "Unmodified";
	case 'M':
	case 'T': /* a file became a link, or the like */
		return "Modified";
	case 'A':
		return "Added";
	case 'D':
		return "Deleted";
	case 'R':
		return "Renamed";
	case 'C':
		return "Copied";
	default:
		return NULL;
	}
}

static int add_file(json_t *files, struct str name, const char *staging, const char *worktree, struct str extra)
{
	if (!name.n || !staging || !worktree || json_array_size(files) >= RECORDS_MAX)
		return -EBADMSG;
	json_t *o = json_object();
	put(o, "name", text_json(name));
	put(o, "staging", json_string(staging));
	put(o, "worktree", json_string(worktree));
	put(o, "extra", text_json(extra));
	json_array_append_new(files, o);
	return 0;
}

/* "1 XY sub mH mI mW hH hI path", "2 ... score path" NUL "old path", "u XY sub m1 m2 m3 mW h1 h2 h3 path". */
static int read_entry(struct str record, struct str *rest, json_t *files)
{
	char kind = record.p[0];
	int fields = kind == '1' ? 6 : kind == '2' ? 7 : 8;
	struct str left = after(record, 2), xy, skipped, old = { 0 };
	if (!cut(&left, ' ', &xy) || xy.n != 2)
		return -EBADMSG;
	for (int i = 0; i < fields; i++)
		if (!cut(&left, ' ', &skipped) || !skipped.n)
			return -EBADMSG;
	if (kind == '2' && (!cut(rest, '\0', &old) || !old.n))
		return -EBADMSG;
	if (kind == 'u')
		return add_file(files, left, "Updated but unmerged", "Updated but unmerged", old);
	return add_file(files, left, word_of(xy.p[0]), word_of(xy.p[1]), old);
}

static int read_ahead_behind(struct str s, json_t *o)
{
	uint64_t ahead, behind;
	struct str first;
	if (!cut(&s, ' ', &first) || first.n < 2 || first.p[0] != '+' || s.n < 2 || s.p[0] != '-' ||
	    parse_u64(after(first, 1), INT32_MAX, &ahead) < 0 || parse_u64(after(s, 1), INT32_MAX, &behind) < 0)
		return -EBADMSG;
	put(o, "ahead", json_integer((json_int_t)ahead));
	put(o, "behind", json_integer((json_int_t)behind));
	put(o, "branchPublished", json_true()); /* the other side is there to be compared with */
	return 0;
}

static int read_header(struct str h, json_t *o)
{
	if (starts(h, "branch.head ")) {
		bool detached = str_eqz(after(h, 12), "(detached)");
		if (h.n == 12)
			return -EBADMSG;
		put(o, "currentBranch", detached ? json_string("HEAD") : text_json(after(h, 12)));
		put(o, "detached", json_boolean(detached));
	} else if (starts(h, "branch.upstream ")) {
		put(o, "upstream", text_json(after(h, 16)));
	} else if (starts(h, "branch.ab ")) {
		return read_ahead_behind(after(h, 10), o);
	}
	return 0; /* git may say more than we know */
}

static int read_record(struct str record, struct str *rest, json_t *o, json_t *files)
{
	if (record.n < 3 || record.p[1] != ' ')
		return -EBADMSG;
	switch (record.p[0]) {
	case '#':
		return read_header(after(record, 2), o);
	case '1':
	case '2':
	case 'u':
		return read_entry(record, rest, files);
	case '?':
		return add_file(files, after(record, 2), "Untracked", "Untracked", (struct str){ 0 });
	case '!':
		return 0;
	default:
		return -EBADMSG;
	}
}

int git_read_status(struct str out, json_t **ret)
{
	json_t *o = json_object(), *files = json_array();
	struct str record;
	int rc = 0;
	put(o, "fileStatus", files);
	put(o, "ahead", json_integer(0));
	put(o, "behind", json_integer(0));
	put(o, "branchPublished", json_false());
	while (rc == 0 && out.n)
		rc = cut(&out, '\0', &record) ? read_record(record, &out, o, files) : -EBADMSG;
	if (rc < 0 || !json_object_get(o, "currentBranch")) {
		json_decref(o);
		return -EBADMSG;
	}
	*ret = o;
	return 0;
}

/* --- lists --- */

int git_read_branches(struct str out, json_t **ret)
{
	json_t *list = json_array();
	struct str name;
	while (out.n && cut(&out, '\0', &name) && name.n && json_array_size(list) < RECORDS_MAX) {
		json_array_append_new(list, text_json(name));
		if (out.n && out.p[0] == '\n') /* for-each-ref ends each line by itself */
			out = after(out, 1);
	}
	if (out.n) {
		json_decref(list);
		return -EBADMSG;
	}
	*ret = list;
	return 0;
}

static bool has_name(const json_t *remotes, const json_t *name)
{
	size_t i;
	json_t *o;
	json_array_foreach((json_t *)(uintptr_t)remotes, i, o) {
		if (json_equal(json_object_get(o, "name"), name))
			return true;
	}
	return false;
}

#define REMOTES_MAX 1000 /* each is compared with those before it */

int git_read_remotes(struct str out, json_t **ret)
{
	json_t *list = json_array();
	struct str record, key;
	while (out.n && cut(&out, '\0', &record)) {
		struct str url = record;
		const size_t before = strlen("remote."), behind = strlen(".url");
		if (!cut(&url, '\n', &key) || key.n <= before + behind || !starts(key, "remote.") || !str_eqz(after(key, key.n - behind), ".url") ||
		    json_array_size(list) >= REMOTES_MAX) {
			json_decref(list);
			return -EBADMSG;
		}
		json_t *name = text_json((struct str){ key.p + before, key.n - before - behind });
		if (has_name(list, name)) /* more URLs of one remote: only pushes use them */
			json_decref(name);
		else
			json_array_append_new(list, json_pack("{s:o, s:o}", "name", name, "url", text_json(url)));
	}
	if (out.n) {
		json_decref(list);
		return -EBADMSG;
	}
	*ret = list;
	return 0;
}

static bool is_hash(struct str s)
{
	if (s.n != 40 && s.n != 64)
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!isxdigit((unsigned char)s.p[i]))
			return false;
	return true;
}

int git_read_hash(struct str out, json_t **ret)
{
	struct str hash;
	if (!cut(&out, '\n', &hash) || out.n || !is_hash(hash))
		return -EBADMSG;
	*ret = json_pack("{s:o}", "hash", text_json(hash));
	return 0;
}

static struct str trimmed(struct str s)
{
	while (s.n && s.p[s.n - 1] == '\n')
		s.n--;
	return s;
}

int git_read_history(struct str out, json_t **ret)
{
	static const char *const names[] = { "hash", "author", "email", "timestamp", "message" };
	json_t *list = json_array();
	while (out.n) {
		struct str field[ARRAY_LEN(names)];
		size_t k = 0;
		while (k < ARRAY_LEN(names) && cut(&out, '\0', &field[k]))
			k++;
		if (k < ARRAY_LEN(names) || !is_hash(field[0]) || json_array_size(list) >= RECORDS_MAX) {
			json_decref(list);
			return -EBADMSG;
		}
		json_t *o = json_object();
		for (k = 0; k < ARRAY_LEN(names); k++)
			put(o, names[k], text_json(trimmed(field[k])));
		json_array_append_new(list, o);
	}
	*ret = list;
	return 0;
}

/* --- errors --- */

/* The first that fits: what is more exact stands before what is more general. */
static const struct {
	const char *a, *b; /* both are in the text; b may be NULL */
	int status;
	const char *code;
} reasons[] = {
	{ "authentication failed", NULL, 401, "GIT_AUTH_FAILED" },
	{ "could not read username", NULL, 401, "GIT_AUTH_FAILED" },
	{ "could not read password", NULL, 401, "GIT_AUTH_FAILED" },
	{ "permission denied (publickey", NULL, 401, "GIT_AUTH_FAILED" },
	{ "not a git repository", NULL, 404, "GIT_REPO_NOT_FOUND" },
	{ "not in a git directory", NULL, 404, "GIT_REPO_NOT_FOUND" },
	{ "does not appear to be a git repository", NULL, 404, "GIT_REPO_NOT_FOUND" },
	{ "repository '", "does not exist", 404, "GIT_REPO_NOT_FOUND" },
	{ "repository '", "not found", 404, "GIT_REPO_NOT_FOUND" },
	{ "remote branch ", "not found", 404, "GIT_BRANCH_NOT_FOUND" },
	{ "branch '", "not found", 404, "GIT_BRANCH_NOT_FOUND" },
	{ "invalid reference:", NULL, 404, "GIT_BRANCH_NOT_FOUND" },
	{ "couldn't find remote ref", NULL, 404, "GIT_BRANCH_NOT_FOUND" },
	{ "src refspec ", "does not match any", 404, "GIT_BRANCH_NOT_FOUND" },
	{ "a branch named '", "already exists", 409, "GIT_BRANCH_EXISTS" },
	{ "[remote rejected]", NULL, 422, "GIT_REMOTE_REJECTED" },
	{ "[rejected]", NULL, 409, "GIT_PUSH_REJECTED" },
	{ "would be overwritten by", NULL, 409, "GIT_DIRTY_WORKTREE" },
	{ "commit your changes or stash them", NULL, 409, "GIT_DIRTY_WORKTREE" },
	{ "conflict (", NULL, 409, "GIT_MERGE_CONFLICT" },
	{ "unmerged", NULL, 409, "GIT_MERGE_CONFLICT" },
	{ "already exists", NULL, 409, "CONFLICT" },
	{ "cannot delete branch", NULL, 409, "CONFLICT" },
	{ "divergent branches", NULL, 409, "CONFLICT" },
	{ "not possible to fast-forward", NULL, 409, "CONFLICT" },
	{ ".lock'", "file exists", 409, "CONFLICT" },
	{ "pathspec '", "did not match any", 404, "FILE_NOT_FOUND" },
	{ "no such remote", NULL, 404, "NOT_FOUND" },
	{ "dubious ownership", NULL, 403, "FILE_ACCESS_DENIED" },
	{ "permission denied", NULL, 403, "FILE_ACCESS_DENIED" },
	{ "could not resolve host", NULL, 502, "GIT_TRANSPORT_FAILED" },
	{ "unable to access '", NULL, 502, "GIT_TRANSPORT_FAILED" },
	{ "could not read from remote repository", NULL, 502, "GIT_TRANSPORT_FAILED" },
	{ "unable to connect to ", NULL, 502, "GIT_TRANSPORT_FAILED" },
	{ "the remote end hung up", NULL, 502, "GIT_TRANSPORT_FAILED" },
	{ "no space left on device", NULL, 507, "INSUFFICIENT_STORAGE" },
};

void git_classify(const char *text, int *ret_status, const char **ret_code)
{
	*ret_status = 400;
	*ret_code = "BAD_REQUEST";
	for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
		const char *a = strcasestr(text, reasons[i].a);
		if (a && (!reasons[i].b || strcasestr(a, reasons[i].b))) {
			*ret_status = reasons[i].status;
			*ret_code = reasons[i].code;
			return;
		}
	}
}

#define MESSAGE_MAX (4U << 10) /* more than an error holds */

/* Length of what stands between "://" and the '@' at s, 0 when this is no such place. */
static size_t userinfo_length(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '@')
			return i;
		if (strchr("/'\" \t\n", s.p[i]))
			return 0;
	}
	return 0;
}

char *git_message(struct str text, const char *secret)
{
	auto_buf struct buf b;
	buf_init(&b, 4 * MESSAGE_MAX);
	size_t secret_n = secret ? strlen(secret) : 0;
	bool at_line = true, in_hint = false;
	for (size_t i = 0; i < text.n && b.len < MESSAGE_MAX;) {
		struct str rest = after(text, i);
		if (at_line)
			in_hint = starts(rest, "hint:");
		at_line = rest.p[0] == '\n';
		size_t n = 1;
		if (secret_n && starts(rest, secret)) {
			n = secret_n;
			buf_addz(&b, in_hint ? "" : "***");
		} else if (!in_hint && starts(rest, "://")) {
			size_t user = userinfo_length(after(rest, 3));
			n = 3 + user;
			buf_addz(&b, user ? "://***" : "://");
		} else if (!in_hint) {
			buf_addc(&b, rest.p[0] ? rest.p[0] : ' ');
		}
		i += n;
	}
	while (b.len && isspace((unsigned char)b.data[b.len - 1]))
		b.data[--b.len] = '\0';
	return b.len ? buf_take(&b) : xstrdup("");
}
