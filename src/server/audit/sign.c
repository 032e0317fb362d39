/* The signed message has its own format, so that a signature of this key cannot be mistaken for a
 * signature of other data:
 *
 *     cove audit checkpoint 1\n<seq>\n<prev in hex>\n */
#include "server/audit/sign.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <sys/stat.h>

#define KEY_FILE "key"
#define PUBLIC_FILE "key.pub"
#define PEM_MAX 4096u
#define RAW_LEN 32u

struct sign_key {
    EVP_PKEY *pkey;
    char id[CHAIN_KEY_ID + 1];
    char *pem;
};

void sign_free(struct sign_key *k)
{
    if (!k)
        return;
    EVP_PKEY_free(k->pkey);
    free(k->pem);
    free(k);
}

const char *sign_id(const struct sign_key *k)
{
    return k->id;
}

const char *sign_pem(const struct sign_key *k)
{
    return k->pem;
}

static char *sign_bio_text(BIO *bio)
{
    char *data;
    long n = BIO_get_mem_data(bio, &data);

    return n > 0 ? str_dup_n(data, (size_t)n) : NULL;
}

/* Takes ownership of the key. */
static int sign_key_from_pkey(EVP_PKEY *pkey, struct sign_key **ret, struct err *err)
{
    struct sign_key *k = mem_new(struct sign_key);
    BIO *bio = BIO_new(BIO_s_mem());
    uint8_t raw[RAW_LEN], hash[CHAIN_HASH];
    size_t n = sizeof(raw);

    k->pkey = pkey;
    if (EVP_PKEY_get_id(pkey) == EVP_PKEY_ED25519 && EVP_PKEY_get_raw_public_key(pkey, raw, &n) == 1 && bio &&
        PEM_write_bio_PUBKEY(bio, pkey) == 1)
        k->pem = sign_bio_text(bio);
    BIO_free(bio);
    if (!k->pem) {
        sign_free(k);
        return err_set(err, ERR_INVALID, "not an Ed25519 key");
    }
    chain_sha256(raw, sizeof(raw), hash);
    chain_hex(hash, CHAIN_KEY_ID / 2, k->id);
    *ret = k;
    return 0;
}

/* Refuses keys that are encrypted with a password: otherwise OpenSSL would prompt on the
 * terminal. */
static int sign_no_password(char *buf UNUSED, int size UNUSED, int writing UNUSED, void *arg UNUSED)
{
    return -1;
}

int sign_read(const char *pem, size_t len, struct sign_key **ret, struct err *err)
{
    BIO *bio = len <= PEM_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
    EVP_PKEY *pkey = bio ? PEM_read_bio_PUBKEY(bio, NULL, sign_no_password, NULL) : NULL;

    BIO_free(bio);
    if (!pkey)
        return err_set(err, ERR_INVALID, "not a public key in PEM format");
    return sign_key_from_pkey(pkey, ret, err);
}

static int sign_read_private(int dir, struct sign_key **ret, struct err *err)
{
    char text[PEM_MAX + 1];
    struct stat st;
    auto_fd int fd = openat(dir, KEY_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, PEM_MAX);

    if (n < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_STATE_DIR, "the key of the audit trail");
    if (st.st_mode & 077)
        return err_set(err, ERR_STATE_DIR,
                       "the key of the audit trail is readable by other users; set its mode to 0600");
    BIO *bio = BIO_new_mem_buf(text, (int)n);
    EVP_PKEY *pkey = bio ? PEM_read_bio_PrivateKey(bio, NULL, sign_no_password, NULL) : NULL;
    BIO_free(bio);
    explicit_bzero(text, sizeof(text));
    if (!pkey)
        return err_set(err, ERR_STATE_DIR, "the key of the audit trail is damaged");
    return sign_key_from_pkey(pkey, ret, err);
}

/* Writes the file atomically: it exists completely or not at all. */
static int sign_put_file(int dir, const char *name, mode_t mode, const char *text, size_t len, struct err *err)
{
    auto_free char *part = str_printf("%s.new", name);
    auto_fd int fd = -1;

    unlinkat(dir, part, 0);
    fd = openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 || fd_write_all(fd, text, len) < 0 || fsync(fd) < 0 || renameat(dir, part, dir, name) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "the key of the audit trail");
    return 0;
}

static int sign_make_private(int dir, struct err *err)
{
    EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    BIO *bio = BIO_new(BIO_s_secmem());
    char *data = NULL;
    int rc = -1;

    if (pkey && bio && PEM_write_bio_PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL) == 1) {
        long n = BIO_get_mem_data(bio, &data);

        rc = sign_put_file(dir, KEY_FILE, 0600, data, (size_t)n, err);
        OPENSSL_cleanse(data, (size_t)n);
    } else {
        err_set(err, ERR_SYS, "cannot create an Ed25519 key");
    }
    BIO_free(bio);
    EVP_PKEY_free(pkey);
    return rc;
}

int sign_open(int dir, struct sign_key **ret, bool *ret_new, struct err *err)
{
    struct err missing = { 0 };

    *ret_new = false;
    if (sign_read_private(dir, ret, &missing) < 0) {
        if (missing.id != ERR_MISSING) {
            *err = missing;
            return -1;
        }
        if (sign_make_private(dir, err) < 0 || sign_read_private(dir, ret, err) < 0)
            return -1;
        *ret_new = true;
    }
    return sign_put_file(dir, PUBLIC_FILE, 0600, (*ret)->pem, strlen((*ret)->pem), err);
}

static size_t sign_message(uint64_t seq, const uint8_t prev[CHAIN_HASH], char ret[128])
{
    char hex[2 * CHAIN_HASH + 1];

    chain_hex(prev, CHAIN_HASH, hex);
    return (size_t)snprintf(ret, 128, "cove audit checkpoint 1\n%" PRIu64 "\n%s\n", seq, hex);
}

void sign_checkpoint(const struct sign_key *k, uint64_t seq, const uint8_t prev[CHAIN_HASH],
                     uint8_t ret[CHAIN_SIGNATURE])
{
    char text[128];
    size_t len = sign_message(seq, prev, text), n = CHAIN_SIGNATURE;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (!ctx || EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) != 1 ||
        EVP_DigestSign(ctx, ret, &n, (const uint8_t *)text, len) != 1 || n != CHAIN_SIGNATURE)
        abort(); /* the key was checked to be a signing key */
    EVP_MD_CTX_free(ctx);
}

bool sign_check(const struct sign_key *k, uint64_t seq, const uint8_t prev[CHAIN_HASH],
                const uint8_t signature[CHAIN_SIGNATURE])
{
    char text[128];
    size_t len = sign_message(seq, prev, text);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool good = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
                EVP_DigestVerify(ctx, signature, CHAIN_SIGNATURE, (const uint8_t *)text, len) == 1;

    EVP_MD_CTX_free(ctx);
    return good;
}
