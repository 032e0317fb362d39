/* The purpose with its NUL precedes the data, so that two pairs of purpose and data never form the
 * same input. */
#include "server/auth/mac.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <sys/random.h>

static void mac_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t ret[MAC_LEN])
{
    unsigned n = 0;

    if (!HMAC(EVP_sha256(), key, (int)key_len, data, len, ret, &n) || n != MAC_LEN)
        abort(); /* if HMAC fails, the machine cannot be trusted with keys */
}

void mac_random_bytes(uint8_t ret[MAC_LEN])
{
    ssize_t n;

    do
        n = getrandom(ret, MAC_LEN, 0);
    while (n < 0 && errno == EINTR);
    if (n != MAC_LEN)
        abort();
}

/* Atomic: writes a temporary file and renames it. */
static int mac_create_pepper(const char *path, uint8_t ret[MAC_LEN], struct err *err)
{
    auto_free char *fresh = str_printf("%s.new", path);
    auto_fd int fd = -1;

    (void)unlink(fresh);
    mac_random_bytes(ret);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fd_write_all(fd, ret, MAC_LEN) < 0 || fsync(fd) < 0 || rename(fresh, path) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.160s", path);
    return 0;
}

int mac_load_pepper(const char *path, uint8_t ret[MAC_LEN], struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint8_t more[MAC_LEN + 1];

    if (fd < 0 && errno == ENOENT)
        return mac_create_pepper(path, ret, err);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, more, sizeof(more));
    if (n < 0)
        return err_sys(err, ERR_STATE_DIR, "%.160s", path);
    if (n != MAC_LEN)
        return err_set(
            err, ERR_STATE_DIR,
            "%.160s: not the file of %d bytes that cove wrote; remove it (this invalidates all delegated tokens)", path,
            MAC_LEN);
    memcpy(ret, more, MAC_LEN);
    OPENSSL_cleanse(more, sizeof(more));
    return 0;
}

void mac_key_init(struct mac_key *s, const uint8_t pepper[MAC_LEN], const char *salt)
{
    mac_hmac_sha256(pepper, MAC_LEN, salt, strlen(salt), s->key);
}

void mac_key_wipe(struct mac_key *s)
{
    OPENSSL_cleanse(s, sizeof(*s));
}

void mac_compute(const struct mac_key *s, const char *purpose, const char *data, size_t len, uint8_t ret[MAC_LEN])
{
    auto_buf all = { 0 };

    buf_add(&all, purpose, strlen(purpose) + 1);
    buf_add(&all, data, len);
    mac_hmac_sha256(s->key, sizeof(s->key), all.data, all.len, ret);
}

bool mac_verify(const struct mac_key *s, const char *purpose, const char *data, size_t len,
                const uint8_t given[MAC_LEN])
{
    uint8_t right[MAC_LEN];

    mac_compute(s, purpose, data, len, right);
    return CRYPTO_memcmp(right, given, MAC_LEN) == 0;
}
