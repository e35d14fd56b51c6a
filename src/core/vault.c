#include "core/vault.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, KEY = 32, NONCE = 12, TAG = 16 };
static_assert(1 + NONCE + TAG == VAULT_OVERHEAD, "the head of what is sealed");

struct vault {
	unsigned char key[KEY];
};

/* Written under another name, synced and renamed: half a key would lock everything away. */
static int make_key(int folder, struct vault *v)
{
	auto_fd int fd = openat(folder, "secrets.key.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	random_bytes(v->key, KEY);
	if (fd < 0 || fchmod(fd, 0600) < 0 || write(fd, v->key, KEY) != KEY || fsync(fd) < 0 ||
	    renameat(folder, "secrets.key.new", folder, "secrets.key") < 0 || fsync(folder) < 0)
		return errno ? -errno : -EIO;
	return 0;
}

static int read_key(int folder, struct vault *v)
{
	struct stat st;
	auto_fd int fd = openat(folder, "secrets.key", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 077) || st.st_size != KEY)
		return -EPERM;
	return read(fd, v->key, KEY) == KEY ? 0 : -EIO;
}

int vault_open(const char *path, bool may_make, struct vault **ret, struct err *e)
{
	auto_fd int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (folder < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "cannot open %s", path);
	struct vault *v = xcalloc(1, sizeof *v);
	int rc = read_key(folder, v);
	if (rc == -ENOENT && may_make)
		rc = make_key(folder, v);
	if (rc == 0) {
		*ret = v;
		return 0;
	}
	vault_free(v);
	if (rc == -EPERM)
		return err_set(e, ERR_UNAVAILABLE, EPERM, "%s/secrets.key must be a file of %d bytes that nobody else may read (mode 0600)", path, KEY);
	return err_sys(e, ERR_UNAVAILABLE, -rc, "the key of the stored secrets, %s/secrets.key", path);
}

void vault_free(struct vault *v)
{
	if (!v)
		return;
	OPENSSL_cleanse(v, sizeof *v);
	free(v);
}

int vault_seal(const struct vault *v, const char *what, struct str plain, struct buf *out, struct err *e)
{
	unsigned char *p = (unsigned char *)buf_reserve(out, VAULT_OVERHEAD + plain.n);
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int n = 0;

	if (p) {
		p[0] = VERSION;
		random_bytes(p + 1, NONCE);
	}
	bool ok = p && c && EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, v->key, p + 1) == 1 &&
		  EVP_EncryptUpdate(c, NULL, &n, (const unsigned char *)what, (int)strlen(what)) == 1 &&
		  EVP_EncryptUpdate(c, p + VAULT_OVERHEAD, &n, (const unsigned char *)plain.p, (int)plain.n) == 1 &&
		  EVP_EncryptFinal_ex(c, p + VAULT_OVERHEAD + n, &n) == 1 && EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, p + 1 + NONCE) == 1;
	EVP_CIPHER_CTX_free(c);
	if (!ok)
		return err_set(e, ERR_INTERNAL, EIO, "the value cannot be encrypted");
	buf_grew(out, VAULT_OVERHEAD + plain.n);
	return 0;
}

int vault_unseal(const struct vault *v, const char *what, const void *sealed, size_t size, struct buf *out, struct err *e)
{
	const unsigned char *p = sealed;
	unsigned char tag[TAG];
	int n = 0;

	if (size < VAULT_OVERHEAD || p[0] != VERSION)
		return err_set(e, ERR_UNAVAILABLE, EUCLEAN, "a stored value is damaged");
	size_t len = size - VAULT_OVERHEAD;
	unsigned char *to = (unsigned char *)buf_reserve(out, len + 1);
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	memcpy(tag, p + 1 + NONCE, TAG);
	bool ok = to && c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, v->key, p + 1) == 1 &&
		  EVP_DecryptUpdate(c, NULL, &n, (const unsigned char *)what, (int)strlen(what)) == 1 &&
		  EVP_DecryptUpdate(c, to, &n, p + VAULT_OVERHEAD, (int)len) == 1 && EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1 &&
		  EVP_DecryptFinal_ex(c, to + n, &n) == 1;
	EVP_CIPHER_CTX_free(c);
	if (!ok) {
		if (to)
			OPENSSL_cleanse(to, len);
		return err_set(e, ERR_UNAVAILABLE, EUCLEAN, "a stored value does not open with this installation's key (secrets.key)");
	}
	buf_grew(out, len);
	return 0;
}
