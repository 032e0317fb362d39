/* A list with the oldest ticket first. All tickets have the same lifetime, so expired ones are at
 * the front and are dropped by the next call. A few thousand hashes are compared in less time than
 * a request takes to be parsed. */
#include "server/auth/tickets.h"

#include "server/auth/apikey.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/random.h>

#define RANDOM_BYTES 20
#define PREFIX "tkt_"
#define DIGITS ((size_t)2 * RANDOM_BYTES)

struct ticket {
    struct ticket *next;
    uint8_t hash[STORE_HASH_LEN];
    uint64_t until_ns;
    struct delegated_token token;
    char method[8];
    char *path;
};

struct tickets {
    struct ticket *first, **last;
    unsigned n;
};

struct tickets *tickets_new(void)
{
    struct tickets *t = mem_new(struct tickets);

    t->last = &t->first;
    return t;
}

static void ticket_drop(struct tickets *t, struct ticket **at)
{
    struct ticket *one = *at;

    *at = one->next;
    if (t->last == &one->next)
        t->last = at;
    t->n--;
    free(one->path);
    free(one);
}

void tickets_drop_all(struct tickets *t)
{
    while (t->first)
        ticket_drop(t, &t->first);
}

void tickets_free(struct tickets *t)
{
    if (!t)
        return;
    tickets_drop_all(t);
    free(t);
}

static void ticket_hash_text(const char *text, uint8_t ret[STORE_HASH_LEN])
{
    unsigned n = 0;

    if (EVP_Digest(text, strlen(text), ret, &n, EVP_sha256(), NULL) != 1 || n != STORE_HASH_LEN)
        abort();
}

static void ticket_random_text(char ret[TICKET_SIZE])
{
    uint8_t random[RANDOM_BYTES];
    ssize_t n;

    do
        n = getrandom(random, sizeof(random), 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(random))
        abort();
    strcpy(ret, PREFIX);
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(ret + strlen(PREFIX) + 2 * i, 3, "%02x", random[i]);
    OPENSSL_cleanse(random, sizeof(random));
}

static void tickets_drop_expired(struct tickets *t, uint64_t now_ns)
{
    while (t->first && t->first->until_ns <= now_ns)
        ticket_drop(t, &t->first);
}

int tickets_make(struct tickets *t, const struct delegated_token *g, const char *method, const char *path,
                 uint64_t now_ns, char ret[TICKET_SIZE], struct err *err)
{
    unsigned own = 0;

    tickets_drop_expired(t, now_ns);
    for (const struct ticket *o = t->first; o; o = o->next)
        own += str_eq(o->token.owner, g->owner);
    if (t->n >= TICKETS_MAX || own >= TICKETS_MAX_OWNER) {
        err_set(err, ERR_LIMIT, "too many unused tickets; they expire within a minute");
        return own >= TICKETS_MAX_OWNER ? err_set_limit(err, "tickets", own, TICKETS_MAX_OWNER)
                                        : err_set_limit(err, "tickets", t->n, TICKETS_MAX);
    }
    struct ticket *one = mem_new(struct ticket);
    ticket_random_text(ret);
    ticket_hash_text(ret, one->hash);
    one->until_ns = now_ns + TICKET_NS;
    one->token = *g;
    str_copy(one->method, sizeof(one->method), method);
    one->path = str_dup(path);
    *t->last = one;
    t->last = &one->next;
    t->n++;
    return 0;
}

/* Whether the path is the prefix itself or below it. */
static bool ticket_path_covers(const char *prefix, const char *path)
{
    size_t n = strlen(prefix);

    return strncmp(prefix, path, n) == 0 && (path[n] == '\0' || path[n] == '/' || prefix[n - 1] == '/');
}

bool tickets_take(struct tickets *t, const char *text, const char *method, const char *path, uint64_t now_ns,
                  struct delegated_token *ret)
{
    uint8_t hash[STORE_HASH_LEN];
    bool fits = false;

    tickets_drop_expired(t, now_ns);
    if (!str_starts(text, PREFIX) || strnlen(text, TICKET_SIZE) != strlen(PREFIX) + DIGITS)
        return false;
    ticket_hash_text(text, hash);
    for (struct ticket **at = &t->first; *at; at = &(*at)->next)
        if (apikey_hash_equal((*at)->hash, hash)) {
            fits = str_eq((*at)->method, method) && ticket_path_covers((*at)->path, path);
            *ret = (*at)->token;
            ticket_drop(t, at);
            break;
        }
    return fits;
}
