/* script_cache.h - the scripts of a server: keeps code that ran successfully, for each tenant and
 * within its quota (store/scripts.h has the rules). */
#pragma once

#include "store/scripts.h"

struct script_cache;

struct script_cache *script_cache_new(struct store *store, const struct store_script_quota *quota); /* borrowed store */
void script_cache_free(struct script_cache *cache); /* after the store was finished */
DEFINE_AUTO(script_cache, script_cache_free);
const struct store_script_quota *script_cache_quota(const struct script_cache *cache);

/* One successful run of code. */
struct script_run {
    const char *tenant;
    const char *language;
    const char *code;
    const char *execution;  /* id */
    const char *created_by; /* may be NULL */
};

/* `done` runs later, once: with the script's row, or with ERR_LIMIT when the tenant may not keep a
 * script of this size. NULL: no callback. */
struct script_cache_call *script_cache_keep(struct script_cache *cache, const struct script_run *run,
                                            store_script_fn *done, void *arg);
/* The script is kept all the same; no callback follows. */
void script_cache_detach(struct script_cache_call *call);

struct script_cache_stats { /* counters since the start */
    uint64_t kept;          /* new scripts */
    uint64_t reused;        /* successful runs of a script that was kept already */
    uint64_t refused;       /* runs whose code was too large for the quota */
    uint64_t evicted;
};
void script_cache_stats(const struct script_cache *cache, struct script_cache_stats *ret);

/* SHA-256 of the language, a NUL byte and the code. */
void script_digest(const char *language, const char *code, uint8_t ret[STORE_HASH_LEN]);
/* 64 hexadecimal digits. False: `text` is not a digest. */
bool script_digest_parse(const char *text, uint8_t ret[STORE_HASH_LEN]);
void script_digest_format(const uint8_t digest[STORE_HASH_LEN], char ret[2 * STORE_HASH_LEN + 1]);
/* The first line of the first comment or docstring in the first lines of the code, without control
 * characters and at most STORE_SCRIPT_DESCRIPTION_MAX bytes. NULL: there is none. The caller
 * frees it. */
char *script_description(const char *code);
