/* The purpose goes in front with its NUL, so no purpose and text run into another pair. */
#include "auth/seal.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <sys/random.h>

static void mac(const void *key, size_t key_len, const void *data, size_t len, uint8_t ret[SEAL_LEN])
{
    unsigned n = 0;

    if (!HMAC(EVP_sha256(), key, (int)key_len, data, len, ret, &n) || n != SEAL_LEN)
        abort(); /* a MAC that fails is a machine that cannot be trusted with one */
}

void seal_random(uint8_t ret[SEAL_LEN])
{
    ssize_t n;

    do
        n = getrandom(ret, SEAL_LEN, 0);
    while (n < 0 && errno == EINTR);
    if (n != SEAL_LEN)
        abort();
}

/* Whole or not at all: it is written under another name first. */
static int make_pepper(const char *path, uint8_t ret[SEAL_LEN], struct err *err)
{
    auto_free char *fresh = str_printf("%s.new", path);
    auto_fd int fd = -1;

    (void)unlink(fresh);
    seal_random(ret);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fd_write_all(fd, ret, SEAL_LEN) < 0 || fsync(fd) < 0 || rename(fresh, path) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.160s", path);
    return 0;
}

int seal_pepper(const char *path, uint8_t ret[SEAL_LEN], struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint8_t more[SEAL_LEN + 1];

    if (fd < 0 && errno == ENOENT)
        return make_pepper(path, ret, err);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, more, sizeof(more));
    if (n < 0)
        return err_sys(err, ERR_STATE_DIR, "%.160s", path);
    if (n != SEAL_LEN)
        return err_set(err, ERR_STATE_DIR,
                       "%.160s: it is not the file of %d bytes that cove wrote; remove it, and all "
                       "tokens that were handed out end",
                       path, SEAL_LEN);
    memcpy(ret, more, SEAL_LEN);
    OPENSSL_cleanse(more, sizeof(more));
    return 0;
}

void seal_init(struct seal *s, const uint8_t pepper[SEAL_LEN], const char *salt)
{
    mac(pepper, SEAL_LEN, salt, strlen(salt), s->key);
}

void seal_wipe(struct seal *s)
{
    OPENSSL_cleanse(s, sizeof(*s));
}

void seal_make(const struct seal *s, const char *purpose, const char *data, size_t len, uint8_t ret[SEAL_LEN])
{
    auto_buf all = { 0 };

    buf_add(&all, purpose, strlen(purpose) + 1);
    buf_add(&all, data, len);
    mac(s->key, sizeof(s->key), all.data, all.len, ret);
}

bool seal_holds(const struct seal *s, const char *purpose, const char *data, size_t len, const uint8_t given[SEAL_LEN])
{
    uint8_t right[SEAL_LEN];

    seal_make(s, purpose, data, len, right);
    return CRYPTO_memcmp(right, given, SEAL_LEN) == 0;
}
