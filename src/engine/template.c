/* Kinds of sandboxes, and the templates that the jailer makes them from. A template is asked for once; its failure is
 * told to all boxes behind it, and the next box tries again. */
#include "engine/inside.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

#define TEMPLATES_SURE 32u /* a jailer keeps them all; of more it may have dropped one, so ask again */

#define HASH_SEED 14695981039346656037ull

static uint64_t hash(uint64_t h, const void *data, size_t len)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211ull;
    return h;
}

struct kind engine_kind(const struct box_spec *spec)
{
    struct kind k = { .filter = { .profile = spec->profile, .grants = spec->grants } };

    if (spec->zygote) {
        (void)str_copy(k.language, sizeof(k.language), spec->zygote->language);
        k.preload = hash(HASH_SEED, spec->zygote->preload, strlen(spec->zygote->preload));
    }
    memcpy(k.filter.deny, spec->deny, sizeof(k.filter.deny));
    return k;
}

bool engine_same_kind(const struct kind *a, const struct kind *b)
{
    return a->filter.profile == b->filter.profile && a->filter.grants == b->filter.grants &&
           memcmp(a->filter.deny, b->filter.deny, sizeof(a->filter.deny)) == 0 && str_eq(a->language, b->language) &&
           a->preload == b->preload;
}

bool box_same_kind(const struct box_spec *a, const struct box_spec *b)
{
    struct kind ka = engine_kind(a), kb = engine_kind(b);

    return engine_same_kind(&ka, &kb);
}

bool engine_same_limits(const struct limits *a, const struct limits *b)
{
    static const uint64_t ours = 1ull << LIMIT_OUTPUT | 1ull << LIMIT_WALL | 1ull << LIMIT_LIFETIME |
                                 1ull << LIMIT_IDLE;

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (a->v[i] != b->v[i] && !(ours >> i & 1))
            return false;
    return true;
}

bool engine_fit_limits(const struct limits *made, const struct limits *want)
{
    static const enum limit late[] = { LIMIT_MEMORY, LIMIT_SWAP, LIMIT_CPU, LIMIT_PIDS };
    struct limits changed = *made;

    for (size_t i = 0; i < ARRAY_LEN(late); i++)
        changed.v[late[i]] = want->v[late[i]];
    return want->v[LIMIT_PIDS] <= made->v[LIMIT_PIDS] && engine_same_limits(&changed, want);
}

static const char *host_name(const struct box_spec *spec)
{
    return spec->hostname ? spec->hostname : "cove";
}

/* All levels that can be prepared raise the same walls today. Who asks for one gets what was prepared for it all the
 * same, so that this stays true when they do not. */
static bool same_place(const struct box_spec *a, const struct box_spec *b)
{
    return a->level == b->level && a->nmounts == 0 && b->nmounts == 0 && box_same_kind(a, b) &&
           str_eq(host_name(a), host_name(b));
}

bool box_like(const struct box_spec *a, const struct box_spec *b)
{
    return same_place(a, b) && engine_same_limits(&a->limits, &b->limits);
}

bool box_fits(const struct box_spec *made, const struct box_spec *want)
{
    return same_place(made, want) && engine_fit_limits(&made->limits, &want->limits);
}

static struct box *waiting_box(struct engine *e, const struct kind *kind)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = e->boxes[i]; b; b = b->next)
            if (b->state == BOX_CREATING && !b->adopted && engine_same_kind(&b->kind, kind))
                return b;
    return NULL;
}

static struct kind *find_template(struct engine *e, const struct kind *kind)
{
    for (size_t i = 0; i < e->ntemplates; i++)
        if (engine_same_kind(&e->templates[i], kind))
            return &e->templates[i];
    return NULL;
}

void engine_template_gone(struct engine *e, const struct kind *kind)
{
    struct kind *t = find_template(e, kind);

    if (t)
        *t = e->templates[--e->ntemplates];
}

/* The boxes behind a template that failed learn its reason and not that there is no such template. One that exists
 * already was made for an earlier host. */
static void on_template(struct ask *ask, const struct answer *a UNUSED, const struct err *err)
{
    struct engine *e = ask->owner;
    struct kind kind = ask->kind;

    if (!err || err->id == ERR_EXISTS)
        return;
    engine_template_gone(e, &kind);
    for (struct box *b; (b = waiting_box(e, &kind));)
        box_fail(b, err);
}

/* Equal kinds have equal names. Unequal filters could share a name only by a collision of 64 bits, and then the jailer
 * refuses the second: it compares the filters themselves. What a zygote loads is the operator's word. */
void engine_template_name(const struct kind *kind, char ret[JAIL_NAME_MAX])
{
    const struct filter_spec *filter = &kind->filter;
    char joins[32] = "";
    bool plain = filter->grants == 0;

    for (size_t i = 0; i < FILTER_DENY_WORDS; i++)
        plain = plain && filter->deny[i] == 0;
    if (kind->language[0])
        snprintf(joins, sizeof(joins), "-%.6s-%08" PRIx32, kind->language,
                 (uint32_t)(kind->preload ^ kind->preload >> 32));
    if (plain)
        snprintf(ret, JAIL_NAME_MAX, "native-%s%s", profile_name(filter->profile), joins);
    else
        snprintf(ret, JAIL_NAME_MAX, "native-%s-%" PRIx32 "-%016" PRIx64 "%s", profile_name(filter->profile),
                 filter->grants, hash(HASH_SEED, filter->deny, sizeof(filter->deny)), joins);
}

void engine_template(struct engine *e, const struct kind *kind)
{
    const struct filter_spec *filter = &kind->filter;
    struct jail_template m = { .profile = (uint8_t)filter->profile,
                               .grants = filter->grants,
                               .joinable = kind->language[0] != '\0' };
    PAYLOAD(payload);

    bool known = find_template(e, kind) != NULL;
    if (known && e->ntemplates <= TEMPLATES_SURE)
        return;
    if (!known) {
        e->templates = mem_resize(e->templates, e->ntemplates + 1, sizeof(*e->templates));
        e->templates[e->ntemplates++] = *kind;
    }
    _Static_assert(JAIL_DENY_WORDS == FILTER_DENY_WORDS, "the set travels whole");
    memcpy(m.deny, filter->deny, sizeof(m.deny));
    engine_template_name(kind, m.name);
    int len = jail_template_encode(&m, payload, NULL);
    struct ask *a = engine_ask(e, FRAME_J_TEMPLATE, payload, len > 0 ? (uint32_t)len : 0, NULL, 0, on_template, e);
    a->kind = *kind;
}
