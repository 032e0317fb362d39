/* Kinds of sandboxes, and the templates that the jailer makes them from. A template is asked for once; its failure is
 * told to all boxes behind it, and the next box tries again. */
#include "engine/inside.h"

#include "base/mem.h"

#include <stdio.h>

#define TEMPLATES_SURE 32u /* a jailer keeps them all; of more it may have dropped one, so ask again */

struct kind engine_kind(const struct box_spec *spec)
{
    struct kind k = { .filter = { .profile = spec->profile, .grants = spec->grants }, .joinable = spec->joinable };

    memcpy(k.filter.deny, spec->deny, sizeof(k.filter.deny));
    return k;
}

bool engine_same_kind(const struct kind *a, const struct kind *b)
{
    return a->filter.profile == b->filter.profile && a->filter.grants == b->filter.grants &&
           memcmp(a->filter.deny, b->filter.deny, sizeof(a->filter.deny)) == 0 && a->joinable == b->joinable;
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

/* Equal filters have equal names. Unequal ones could share a name only by a collision of 64 bits, and then the jailer
 * refuses the second: it compares the filters themselves. */
void engine_template_name(const struct kind *kind, char ret[JAIL_NAME_MAX])
{
    const struct filter_spec *filter = &kind->filter;
    const char *joins = kind->joinable ? "-joinable" : "";
    uint64_t h = 14695981039346656037ull;
    bool plain = filter->grants == 0;

    for (size_t i = 0; i < FILTER_DENY_WORDS; i++) {
        plain = plain && filter->deny[i] == 0;
        for (unsigned shift = 0; shift < 64; shift += 8)
            h = (h ^ (filter->deny[i] >> shift & 0xff)) * 1099511628211ull;
    }
    if (plain)
        snprintf(ret, JAIL_NAME_MAX, "native-%s%s", profile_name(filter->profile), joins);
    else
        snprintf(ret, JAIL_NAME_MAX, "native-%s-%" PRIx32 "-%016" PRIx64 "%s", profile_name(filter->profile),
                 filter->grants, h, joins);
}

void engine_template(struct engine *e, const struct kind *kind)
{
    const struct filter_spec *filter = &kind->filter;
    struct jail_template m = { .profile = (uint8_t)filter->profile,
                               .grants = filter->grants,
                               .joinable = kind->joinable };
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
