/* Answers of executions that lie here until their clients have taken them. An execution is over when it is answered,
 * and its place goes to the next; its answer can be large, and a client that reads slowly, or not at all, keeps it in
 * memory. Who has too much of that lying here begins nothing more until some of it is taken; others are not asked to
 * wait for them, so it is counted by tenant. A tenant without any has no entry. */
#include "api/inside.h"

#include "base/mem.h"
#include "base/str.h"

#define UNTAKEN_MAX (64 * MIB)

struct untaken {
    struct untaken *next;
    char owner[STORE_OWNER_MAX + 1];
    uint64_t bytes;
};

struct lying {
    struct api *api;
    struct untaken *of;
    uint64_t bytes;
};

static struct untaken *find(const struct api *api, const char *owner)
{
    struct untaken *u = api->untaken;

    while (u && !str_eq(u->owner, owner))
        u = u->next;
    return u;
}

int untaken_check(const struct api *api, const char *owner, struct err *err)
{
    const struct untaken *u = find(api, owner);

    if (!u || u->bytes < UNTAKEN_MAX)
        return 0;
    return err_set(err, ERR_EXECUTOR_FULL, "answers of %llu MiB have not been read yet: read them first",
                   u->bytes / MIB);
}

static void taken(void *p)
{
    auto_free struct lying *l = p;
    struct untaken **at = &l->api->untaken;

    l->of->bytes -= l->bytes;
    if (l->of->bytes > 0)
        return;
    while (*at != l->of)
        at = &(*at)->next;
    *at = l->of->next;
    free(l->of);
}

void untaken_add(struct http_req *req, struct api *api, const char *owner, uint64_t bytes)
{
    struct lying *l = mem_new(struct lying);
    struct untaken *u = find(api, owner);

    if (!u) {
        u = mem_new(struct untaken);
        (void)str_copy(u->owner, sizeof(u->owner), owner);
        u->next = api->untaken;
        api->untaken = u;
    }
    u->bytes += bytes;
    *l = (struct lying){ api, u, bytes };
    http_keep(req, l, taken);
}
