/* A sealed value is a nonce of 12 bytes, the ciphertext and a tag of 16 bytes, in hexadecimal.
 * Tenant and name are authenticated with it, so a row that is copied to another tenant or name does
 * not decrypt.
 *
 * 1. The table in memory changes only after the store has committed the change.
 * 2. A value is in memory in clear only between secrets_reveal and secrets_wipe.
 * 3. Buckets are chosen by tenant, which clients cannot choose; a tenant has few secrets. */
#include "service/secrets.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/key_file.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/hostname.h"
#include "store/rows.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#define SECRET_BUCKETS 256u
#define SECRET_NONCE 12
#define SECRET_TAG 16
#define SECRET_USE_INTERVAL_NS NS_PER_S

struct secret {
    struct secret *next;
    struct store_secret row;
    uint64_t uses; /* not written yet */
    struct ev_timer write_timer;
    struct secrets *secrets;
};

struct secrets {
    struct secrets_settings set;
    char *key_file;
    bool has_key;
    uint8_t key[KEY_FILE_LEN];
    struct secret *buckets[SECRET_BUCKETS];
    struct secrets_stats stats;
};

/* --- the table --- */

static struct secret **secret_bucket(const struct secrets *s, const char *tenant)
{
    const struct secrets *table = s;

    return (struct secret **)(uintptr_t)&table->buckets[hash_fold(hash_str(HASH_INIT, tenant)) % SECRET_BUCKETS];
}

static struct secret **secret_place(const struct secrets *s, const char *tenant, const char *name)
{
    struct secret **p = secret_bucket(s, tenant);

    while (*p && !(str_eq((*p)->row.owner, tenant) && str_eq((*p)->row.name, name)))
        p = &(*p)->next;
    return p;
}

static void secret_free(struct secret *x)
{
    ev_timer_clear(x->secrets->set.ev, &x->write_timer);
    row_done(&row_secret, &x->row);
    free(x);
}

static void secret_remove(struct secrets *s, const char *tenant, const char *name)
{
    struct secret **p = secret_place(s, tenant, name), *gone = *p;

    if (!gone)
        return;
    *p = gone->next;
    s->stats.count--;
    secret_free(gone);
}

static void secret_set(struct secrets *s, const struct store_secret *row)
{
    struct secret **p = secret_place(s, row->owner, row->name);

    if (!*p) {
        *p = mem_new(struct secret);
        (*p)->secrets = s;
        s->stats.count++;
    }
    row_done(&row_secret, &(*p)->row);
    row_copy(&row_secret, &(*p)->row, row);
    (*p)->row.uses += (*p)->uses;
}

void secrets_forget_tenant(struct secrets *s, const char *tenant)
{
    struct secret **p = secret_bucket(s, tenant);

    while (*p) {
        struct secret *x = *p;

        if (!str_eq(x->row.owner, tenant)) {
            p = &x->next;
            continue;
        }
        *p = x->next;
        s->stats.count--;
        secret_free(x);
    }
}

struct secrets *secrets_new(const struct secrets_settings *set)
{
    struct secrets *s = mem_new(struct secrets);

    s->set = *set;
    s->key_file = str_dup(set->key_file);
    return s;
}

void secrets_free(struct secrets *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < SECRET_BUCKETS; i++)
        for (struct secret *x = s->buckets[i], *next; x; x = next) {
            next = x->next;
            secret_free(x);
        }
    explicit_bzero(s->key, sizeof(s->key));
    free(s->key_file);
    free(s);
}

uint64_t secrets_per_tenant(const struct secrets *s)
{
    return s->set.per_tenant;
}

const struct store_secret *secrets_find(const struct secrets *s, const char *tenant, const char *name)
{
    const struct secret *x = *secret_place(s, tenant, name);

    return x ? &x->row : NULL;
}

void secrets_stats(const struct secrets *s, struct secrets_stats *ret)
{
    *ret = s->stats;
}

/* --- loading --- */

struct secrets_loading {
    struct secrets *secrets;
    secrets_loaded_fn *done;
    void *arg;
};

static void secrets_load_page(struct secrets_loading *l, const char *cursor);

static void secrets_on_page(void *arg, const struct err *err, const struct store_secret *rows, size_t n,
                            const char *next)
{
    struct secrets_loading *l = arg;

    for (size_t i = 0; !err && i < n; i++)
        secret_set(l->secrets, &rows[i]);
    if (!err && next) {
        secrets_load_page(l, next);
        return;
    }
    l->done(l->arg, err);
    free(l);
}

static void secrets_load_page(struct secrets_loading *l, const char *cursor)
{
    const struct store_list q = { .owner = STORE_ANY_OWNER, .cursor = cursor, .limit = STORE_LIST_MAX };

    store_secret_list(l->secrets->set.store, &q, secrets_on_page, l);
}

void secrets_load(struct secrets *s, secrets_loaded_fn *done, void *arg)
{
    struct secrets_loading *l = mem_new(struct secrets_loading);

    *l = (struct secrets_loading){ s, done, arg };
    secrets_load_page(l, NULL);
}

/* --- checks --- */

int secret_name_check(const char *name, struct err *err)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_");

    if (n == 0 || name[n] || n > SECRET_NAME_MAX || name[0] == '-' || name[n - 1] == '-')
        return err_set(err, ERR_INVALID,
                       "name '%.64s': must be 1 to %u lower-case letters, digits, '-' and '_', because "
                       "http://NAME.secret.cove/ holds it",
                       name, SECRET_NAME_MAX);
    return 0;
}

int secret_value_check(const char *value, size_t len, struct err *err)
{
    if (len < SECRET_VALUE_MIN || len > SECRET_VALUE_MAX)
        return err_set(err, ERR_INVALID,
                       "value: must have %u to %u bytes; it is removed from responses, where a shorter one occurs by "
                       "chance",
                       SECRET_VALUE_MIN, SECRET_VALUE_MAX);
    for (size_t i = 0; i < len; i++)
        if (value[i] < 0x20 || value[i] > 0x7e)
            return err_set(err, ERR_INVALID,
                           "value: byte %zu is not printable ASCII, and the value becomes part of a header%s", i + 1,
                           i + 1 == len && value[i] == '\n' ? "; omit the line feed at its end" : "");
    return 0;
}

int secret_hosts_add(struct buf *list, const char *host, struct err *err)
{
    char name[HOSTNAME_MAX + 1];

    if (hostname_normalize(host, strlen(host), name, err) < 0)
        return err_wrap(err, "hosts");
    buf_addf(list, "%s%s", list->len ? " " : "", name);
    return 0;
}

static bool secret_may_go_to(const struct store_secret *row, const char *host)
{
    size_t n = strlen(host);

    if (!row->hosts || !*row->hosts)
        return true;
    for (const char *at = row->hosts; (at = strstr(at, host)); at += n)
        if ((at == row->hosts || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* --- encryption --- */

static int secrets_need_key(struct secrets *s, struct err *err)
{
    if (s->has_key)
        return 0;
    if (key_file_load(s->key_file, "all secrets must be set again then", s->key, err) < 0)
        return -1;
    s->has_key = true;
    return 0;
}

/* The context authenticates "TENANT", a NUL byte and "NAME". */
static bool secret_add_context(EVP_CIPHER_CTX *c, bool seal, const char *tenant, const char *name)
{
    int (*update)(EVP_CIPHER_CTX *, unsigned char *, int *, const unsigned char *, int) = seal ? EVP_EncryptUpdate
                                                                                               : EVP_DecryptUpdate;
    int n;

    return update(c, NULL, &n, (const unsigned char *)tenant, (int)strlen(tenant) + 1) == 1 &&
           update(c, NULL, &n, (const unsigned char *)name, (int)strlen(name)) == 1;
}

static char *secret_hex(const uint8_t *data, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char *text = mem_alloc(2 * len + 1);

    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    return text;
}

static int secret_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the number of bytes; 0: not hexadecimal, or longer than cap. */
static size_t secret_unhex(const char *text, uint8_t *ret, size_t cap)
{
    size_t n = strlen(text);

    if (n % 2 || n / 2 > cap)
        return 0;
    for (size_t i = 0; i < n / 2; i++) {
        int high = secret_hex_digit(text[2 * i]), low = secret_hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return 0;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return n / 2;
}

static char *secret_seal(const struct secrets *s, const char *tenant, const char *name, const char *value)
{
    uint8_t out[SECRET_NONCE + SECRET_VALUE_MAX + SECRET_TAG];
    size_t len = strlen(value);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n;

    if (!c || RAND_bytes(out, SECRET_NONCE) != 1 || EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, out) != 1 ||
        !secret_add_context(c, true, tenant, name) ||
        EVP_EncryptUpdate(c, out + SECRET_NONCE, &n, (const unsigned char *)value, (int)len) != 1 || n != (int)len ||
        EVP_EncryptFinal_ex(c, out + SECRET_NONCE + len, &n) != 1 ||
        EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, SECRET_TAG, out + SECRET_NONCE + len) != 1)
        abort(); /* if AES fails, the machine cannot be trusted with secrets */
    EVP_CIPHER_CTX_free(c);
    return secret_hex(out, SECRET_NONCE + len + SECRET_TAG);
}

static bool secret_open(const struct secrets *s, const struct store_secret *row, char *ret)
{
    uint8_t in[SECRET_NONCE + SECRET_VALUE_MAX + SECRET_TAG];
    size_t len = secret_unhex(row->sealed, in, sizeof(in));
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n = 0, last = 0;

    if (!c || len <= SECRET_NONCE + SECRET_TAG) {
        EVP_CIPHER_CTX_free(c);
        return false;
    }
    size_t body = len - SECRET_NONCE - SECRET_TAG;
    bool good = EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, in) == 1 &&
                secret_add_context(c, false, row->owner, row->name) &&
                EVP_DecryptUpdate(c, (unsigned char *)ret, &n, in + SECRET_NONCE, (int)body) == 1 &&
                EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, SECRET_TAG, in + SECRET_NONCE + body) == 1 &&
                EVP_DecryptFinal_ex(c, (unsigned char *)ret + n, &last) == 1;
    EVP_CIPHER_CTX_free(c);
    ret[good ? body : 0] = '\0';
    return good;
}

int secrets_reveal(struct secrets *s, const char *tenant, const char *name, const char *host, char **ret,
                   struct err *err)
{
    const struct store_secret *row = secrets_find(s, tenant, name);

    if (!row)
        return err_set(err, ERR_SECRET_MISSING, "there is no secret '%.64s'; set it with 'cove secret set %.64s'", name,
                       name);
    if (!secret_may_go_to(row, host))
        return err_set(err, ERR_SECRET_HOST, "secret '%.64s' may not be sent to %.100s; its hosts: %.300s", name, host,
                       row->hosts);
    if (secrets_need_key(s, err) < 0)
        return -1;
    char *value = mem_alloc(SECRET_VALUE_MAX + 1);
    if (!secret_open(s, row, value)) {
        secrets_wipe(value);
        return err_set(err, ERR_SECRET_SEALED, "secret '%.64s': its value does not decrypt with the key file", name);
    }
    *ret = value;
    return 0;
}

void secrets_wipe(char *value)
{
    if (value)
        explicit_bzero(value, SECRET_VALUE_MAX + 1);
    free(value);
}

/* --- changes --- */

struct secret_change {
    struct secrets *secrets;
    char *tenant, *name;
    union {
        store_secret_put_fn *put;
        store_done_fn *removed;
    } done;
    void *arg;
    struct err err; /* of a change that was refused before the store saw it */
    struct ev_defer defer;
};

static struct secret_change *secret_change_new(struct secrets *s, const char *tenant, const char *name, void *arg)
{
    struct secret_change *c = mem_new(struct secret_change);

    *c = (struct secret_change){ .secrets = s, .tenant = str_dup(tenant), .name = str_dup(name), .arg = arg };
    return c;
}

static void secret_change_free(struct secret_change *c)
{
    free(c->tenant);
    free(c->name);
    free(c);
}

static void secrets_on_put(void *arg, const struct err *err, const struct store_secret *row, bool is_new)
{
    struct secret_change *c = arg;

    if (!err)
        secret_set(c->secrets, row);
    c->done.put(c->arg, err, row, is_new);
    secret_change_free(c);
}

static void secrets_on_put_refused(void *arg)
{
    struct secret_change *c = arg;

    c->done.put(c->arg, &c->err, NULL, false);
    secret_change_free(c);
}

void secrets_put(struct secrets *s, const char *tenant, const char *name, const char *value, const char *hosts,
                 const char *created_by, store_secret_put_fn *done, void *arg)
{
    struct secret_change *c = secret_change_new(s, tenant, name, arg);
    uint64_t now = clock_real_ms();
    struct store_secret row = { .created_ms = now,
                                .updated_ms = now,
                                .hosts = (char *)(uintptr_t)hosts,
                                .created_by = (char *)(uintptr_t)(created_by && *created_by ? created_by : NULL) };

    c->done.put = done;
    if (secret_name_check(name, &c->err) < 0 || secret_value_check(value, strlen(value), &c->err) < 0 ||
        secrets_need_key(s, &c->err) < 0) {
        ev_defer(s->set.ev, &c->defer, secrets_on_put_refused, c);
        return;
    }
    id_new("se", row.id);
    (void)str_copy(row.owner, sizeof(row.owner), tenant);
    (void)str_copy(row.name, sizeof(row.name), name);
    row.sealed = secret_seal(s, tenant, name, value);
    store_secret_put(s->set.store, &row, s->set.per_tenant, secrets_on_put, c);
    free(row.sealed);
}

static void secrets_on_removed(void *arg, const struct err *err)
{
    struct secret_change *c = arg;

    if (!err)
        secret_remove(c->secrets, c->tenant, c->name);
    c->done.removed(c->arg, err);
    secret_change_free(c);
}

void secrets_delete(struct secrets *s, const char *tenant, const char *name, store_done_fn *done, void *arg)
{
    struct secret_change *c = secret_change_new(s, tenant, name, arg);

    c->done.removed = done;
    store_secret_delete(s->set.store, tenant, name, secrets_on_removed, c);
}

/* --- use --- */

static void secret_on_use_written(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("cannot record the use of a secret: %s", err->msg);
}

static void secret_write_use(void *arg)
{
    struct secret *x = arg;

    store_secret_add_use(x->secrets->set.store, x->row.owner, x->row.name, x->uses, x->row.last_used_ms,
                         secret_on_use_written, NULL);
    x->uses = 0;
}

void secrets_count_use(struct secrets *s, const char *tenant, const char *name, uint64_t uses)
{
    struct secret *x = *secret_place(s, tenant, name);

    s->stats.uses += uses;
    if (!x)
        return;
    if (x->uses == 0)
        ev_timer_set(s->set.ev, &x->write_timer, ev_now(s->set.ev) + SECRET_USE_INTERVAL_NS, secret_write_use, x);
    x->uses += uses;
    x->row.uses += uses;
    x->row.last_used_ms = clock_real_ms();
}
