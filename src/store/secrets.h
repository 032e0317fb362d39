/* secrets.h - the secrets of tenants, sealed: the store never sees a value. Calls and rows follow
 * the rules of store.h. */
#pragma once

#include "store/store.h"

#define STORE_SECRET_SEALED_MAX 4096u /* bytes of the sealed text */
#define STORE_SECRET_HOSTS_MAX 4096u  /* bytes of the list */

struct store_secret {
    char id[ID_SIZE]; /* se... */
    char owner[STORE_OWNER_MAX + 1];
    char name[STORE_NAME_MAX + 1]; /* unique for an owner */
    char *sealed;                  /* the encrypted value, in hexadecimal (service/secrets.c) */
    /* Hosts that it may be bound to, separated by spaces; NULL: any. store_secret_put: NULL keeps
     * those of a secret that exists, "" is any. */
    char *hosts;
    uint64_t generation;
    uint64_t created_ms, updated_ms;
    uint64_t last_used_ms; /* 0: never */
    uint64_t uses;         /* requests to which it was added */
    char *created_by;      /* like store_sandbox.created_by */
};

#define STORE_SECRET_SET_VALUE (1u << 0) /* sealed, updated_ms and created_by */
#define STORE_SECRET_SET_USE (1u << 1)   /* uses and last_used_ms */
#define STORE_SECRET_SET_HOSTS (1u << 2)

typedef void store_secret_put_fn(void *arg, const struct err *err, const struct store_secret *row, bool is_new);
typedef void store_secrets_fn(void *arg, const struct err *err, const struct store_secret *rows, size_t n,
                              const char *next);

/* Inserts the secret, or sets the value of the one with its name, which keeps its id and its
 * figures of use. ERR_QUOTA: the owner has `max` secrets, and this one is new. */
struct store_request *store_secret_put(struct store *st, const struct store_secret *row, uint64_t max,
                                       store_secret_put_fn *done, void *arg);
/* Adds to the figures of use; a secret that does not exist any more is ignored. */
struct store_request *store_secret_add_use(struct store *st, const char *owner, const char *name, uint64_t uses,
                                           uint64_t last_used_ms, store_done_fn *done, void *arg);
struct store_request *store_secret_delete(struct store *st, const char *owner, const char *name, store_done_fn *done,
                                          void *arg);
struct store_request *store_secret_list(struct store *st, const struct store_list *q, store_secrets_fn *done,
                                        void *arg);
