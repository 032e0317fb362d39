/* secrets.h - the secrets of tenants: values that cove-egress adds to requests of a sandbox, and
 * that never enter it.
 *
 * The store holds each value encrypted (AES-256-GCM) under a key that is a file of the server. All
 * rows are in memory too, still encrypted: a value is decrypted when a sandbox is bound to it, and
 * for nothing else. No call returns a value to a client. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "store/secrets.h"

#define SECRET_NAME_MAX 63u
#define SECRET_VALUE_MIN 8u /* the value is removed from responses; a shorter one occurs in ordinary text */
#define SECRET_VALUE_MAX 1024u
#define SECRET_HOSTS_MAX 16u

struct secrets;

struct secrets_settings {
    struct ev *ev;
    struct store *store;
    const char *key_file; /* created at the first secret */
    uint64_t per_tenant;  /* how many a tenant may have */
};

struct secrets *secrets_new(const struct secrets_settings *s); /* copies the settings */
void secrets_free(struct secrets *s);                          /* after the store was finished */
DEFINE_AUTO(secrets, secrets_free);
uint64_t secrets_per_tenant(const struct secrets *s);

/* Reads all rows of the store. Calls before the end see none. */
typedef void secrets_loaded_fn(void *arg, const struct err *err);
void secrets_load(struct secrets *s, secrets_loaded_fn *done, void *arg);

/* Lower-case letters, digits, '-' and '_': the name is a label of NAME.secret.cove. */
int secret_name_check(const char *name, struct err *err);
/* Printable ASCII: the value becomes part of a header. */
int secret_value_check(const char *value, size_t len, struct err *err);

/* Appends a host to a list for secrets_put, normalised: a name, without a port. */
int secret_hosts_add(struct buf *list, const char *host, struct err *err);
/* Creates the secret or replaces its value. hosts: those that it may be bound to, separated by
 * spaces; "" is any, and NULL keeps those that it has. */
void secrets_put(struct secrets *s, const char *tenant, const char *name, const char *value, const char *hosts,
                 const char *created_by, store_secret_put_fn *done, void *arg);
void secrets_delete(struct secrets *s, const char *tenant, const char *name, store_done_fn *done, void *arg);
void secrets_forget_tenant(struct secrets *s, const char *tenant); /* its rows were removed with it */
/* NULL: the tenant has no secret of this name. Valid until the next call. */
const struct store_secret *secrets_find(const struct secrets *s, const char *tenant, const char *name);

/* The decrypted value, for requests to a host; the caller wipes it with secrets_wipe(). */
int secrets_reveal(struct secrets *s, const char *tenant, const char *name, const char *host, char **ret,
                   struct err *err);
void secrets_wipe(char *value); /* NULL is accepted */

/* The proxy added the secret to requests. Written to the store at most once a second for each
 * secret. */
void secrets_count_use(struct secrets *s, const char *tenant, const char *name, uint64_t uses);
struct secrets_stats {
    uint64_t count; /* secrets of all tenants */
    uint64_t uses;  /* since the start */
};
void secrets_stats(const struct secrets *s, struct secrets_stats *ret);
