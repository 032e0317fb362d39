/* Kinds of sandboxes, and the templates that the jailer makes them from. A template is requested
 * once; if that fails, all sandboxes that were requested after it fail with its error, and the
 * next sandbox tries again. */
#include "sandbox/engine_internal.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

/* The jailer keeps at least this many; with more templates it may have dropped one, so request
 * it again. */
#define TEMPLATES_KEPT_MIN 32u

struct sandbox_kind sandbox_kind_of_spec(const struct sandbox_spec *spec)
{
    struct sandbox_kind k = { .driver = spec->driver, .filter = { .profile = spec->profile, .grants = spec->grants } };

    if (spec->zygote) {
        (void)str_copy(k.language, sizeof(k.language), spec->zygote->language);
        k.preload = hash_bytes(HASH_INIT, spec->zygote->preload, strlen(spec->zygote->preload));
    }
    memcpy(k.filter.deny, spec->deny, sizeof(k.filter.deny));
    return k;
}

bool sandbox_kind_equal(const struct sandbox_kind *a, const struct sandbox_kind *b)
{
    return a->driver == b->driver && a->filter.profile == b->filter.profile && a->filter.grants == b->filter.grants &&
           memcmp(a->filter.deny, b->filter.deny, sizeof(a->filter.deny)) == 0 && str_eq(a->language, b->language) &&
           a->preload == b->preload;
}

bool sandbox_spec_same_kind(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    struct sandbox_kind ka = sandbox_kind_of_spec(a), kb = sandbox_kind_of_spec(b);

    return sandbox_kind_equal(&ka, &kb);
}

bool engine_jailer_limits_equal(const struct limits *a, const struct limits *b)
{
    static const uint64_t ours = 1ull << LIMIT_OUTPUT | 1ull << LIMIT_WALL | 1ull << LIMIT_LIFETIME |
                                 1ull << LIMIT_IDLE;

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (a->v[i] != b->v[i] && !(ours >> i & 1))
            return false;
    return true;
}

bool engine_jailer_limits_fit(const struct limits *made, const struct limits *want)
{
    static const enum limit late[] = { LIMIT_MEMORY, LIMIT_SWAP, LIMIT_CPU, LIMIT_PIDS };
    struct limits changed = *made;

    for (size_t i = 0; i < ARRAY_LEN(late); i++)
        changed.v[late[i]] = want->v[late[i]];
    return want->v[LIMIT_PIDS] <= made->v[LIMIT_PIDS] && engine_jailer_limits_equal(&changed, want);
}

static const char *sandbox_spec_hostname(const struct sandbox_spec *spec)
{
    return spec->hostname ? spec->hostname : "cove";
}

/* All levels that can be prepared raise the same walls today. A request still gets only a
 * sandbox of its own level, so that this stays correct when the levels differ. */
static bool sandbox_spec_same_walls(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    return a->level == b->level && network_policy_equal(&a->network, &b->network) && a->nmounts == 0 &&
           b->nmounts == 0 && sandbox_spec_same_kind(a, b) &&
           str_eq(sandbox_spec_hostname(a), sandbox_spec_hostname(b));
}

bool sandbox_spec_equal(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    return sandbox_spec_same_walls(a, b) && engine_jailer_limits_equal(&a->limits, &b->limits);
}

bool sandbox_spec_fits_claim(const struct sandbox_spec *made, const struct sandbox_spec *want)
{
    return sandbox_spec_same_walls(made, want) && engine_jailer_limits_fit(&made->limits, &want->limits);
}

static struct sandbox_handle *template_find_waiting_handle(struct engine *e, const struct sandbox_kind *kind)
{
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            if (b->state == SANDBOX_HANDLE_CREATING && !b->adopted && sandbox_kind_equal(&b->kind, kind))
                return b;
    return NULL;
}

static struct sandbox_kind *template_find(struct engine *e, const struct sandbox_kind *kind)
{
    for (size_t i = 0; i < e->ntemplates; i++)
        if (sandbox_kind_equal(&e->templates[i], kind))
            return &e->templates[i];
    return NULL;
}

void engine_forget_template(struct engine *e, const struct sandbox_kind *kind)
{
    struct sandbox_kind *t = template_find(e, kind);

    if (t)
        *t = e->templates[--e->ntemplates];
}

/* Sandboxes that wait for a template that failed fail with its error, not with "no such
 * template". A template that exists already was made for a previous server process. */
static void template_on_reply(struct jailer_request *ask, const struct jailer_reply *a UNUSED, const struct err *err)
{
    struct engine *e = ask->owner;
    struct sandbox_kind kind = ask->kind;

    if (!err || err->id == ERR_EXISTS)
        return;
    engine_forget_template(e, &kind);
    for (struct sandbox_handle *b; (b = template_find_waiting_handle(e, &kind));)
        sandbox_handle_fail(b, err);
}

/* Equal kinds have equal names. Unequal filters could share a name only by a 64-bit collision,
 * and then the jailer refuses the second: it compares the filters themselves. The list of
 * preloads comes from the operator and is trusted. */
void engine_template_name(const struct sandbox_kind *kind, char ret[JAIL_NAME_MAX])
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
        snprintf(ret, JAIL_NAME_MAX, "%s-%s%s", driver_name(kind->driver), profile_name(filter->profile), joins);
    else
        snprintf(ret, JAIL_NAME_MAX, "%s-%s-%" PRIx32 "-%016" PRIx64 "%s", driver_name(kind->driver),
                 profile_name(filter->profile), filter->grants,
                 hash_bytes(HASH_INIT, filter->deny, sizeof(filter->deny)), joins);
}

void engine_request_template(struct engine *e, const struct sandbox_kind *kind)
{
    const struct filter_spec *filter = &kind->filter;
    struct jail_template m = { .driver = (uint8_t)kind->driver,
                               .profile = (uint8_t)filter->profile,
                               .grants = filter->grants,
                               .joinable = kind->language[0] != '\0' };
    PAYLOAD(payload);

    bool known = template_find(e, kind) != NULL;
    if (known && e->ntemplates <= TEMPLATES_KEPT_MIN)
        return;
    if (!known) {
        e->templates = mem_resize(e->templates, e->ntemplates + 1, sizeof(*e->templates));
        e->templates[e->ntemplates++] = *kind;
    }
    _Static_assert(JAIL_DENY_WORDS == FILTER_DENY_WORDS, "the set fits into the message");
    memcpy(m.deny, filter->deny, sizeof(m.deny));
    engine_template_name(kind, m.name);
    int len = jail_template_encode(&m, payload, NULL);
    struct jailer_request *a = engine_request(e, FRAME_J_TEMPLATE, payload, len > 0 ? (uint32_t)len : 0, NULL, 0,
                                              template_on_reply, e);
    a->kind = *kind;
}
