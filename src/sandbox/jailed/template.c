/* The templates that the jailer makes sandboxes from, one for each kind. A template is requested
 * once; if that fails, all sandboxes that were requested after it fail with its error, and the
 * next sandbox tries again. */
#include "sandbox/jailed/jailed_internal.h"

#include "core/base/hash.h"
#include "core/base/mem.h"

#include <stdio.h>

/* The jailer keeps at least this many; with more templates it may have dropped one, so request
 * it again. */
#define TEMPLATES_KEPT_MIN 32u

static struct sandbox_kind *jailed_find_template(struct jailed_link *l, const struct sandbox_kind *kind)
{
    for (size_t i = 0; i < l->ntemplates; i++)
        if (sandbox_kind_equal(&l->templates[i], kind))
            return &l->templates[i];
    return NULL;
}

void jailed_forget_template(struct jailed_link *l, const struct sandbox_kind *kind)
{
    struct sandbox_kind *t = jailed_find_template(l, kind);

    if (t)
        *t = l->templates[--l->ntemplates];
}

/* Sandboxes that wait for a template that failed fail with its error, not with "no such
 * template". A template that exists already was made for a previous server process. */
static void jailed_on_template(struct jailed_link *l, struct jailed_request *a, const struct jailed_reply *reply UNUSED,
                               const struct err *err)
{
    if (!err || err->id == ERR_EXISTS)
        return;
    jailed_forget_template(l, &a->kind);
    jailed_fail_creations(l, &a->kind, err);
}

/* Equal kinds have equal names. Unequal filters could share a name only by a 64-bit collision,
 * and then the jailer refuses the second: it compares the filters themselves. The list of
 * preloads comes from the operator and is trusted. */
void jailed_template_name(const struct sandbox_kind *kind, char ret[JAIL_NAME_MAX])
{
    const struct filter_spec *filter = &kind->filter;
    char joins[32] = "";
    const char *egress = kind->egress ? "-egress" : "";
    bool plain = filter->grants == 0;

    for (size_t i = 0; i < FILTER_DENY_WORDS; i++)
        plain = plain && filter->deny[i] == 0;
    if (kind->language[0])
        snprintf(joins, sizeof(joins), "-%.6s-%08" PRIx32, kind->language,
                 (uint32_t)(kind->preload ^ kind->preload >> 32));
    if (plain)
        snprintf(ret, JAIL_NAME_MAX, "%s-%s%s%s", driver_name(kind->driver), profile_name(filter->profile), joins,
                 egress);
    else
        snprintf(ret, JAIL_NAME_MAX, "%s-%s-%" PRIx32 "-%016" PRIx64 "%s%s", driver_name(kind->driver),
                 profile_name(filter->profile), filter->grants,
                 hash_bytes(HASH_INIT, filter->deny, sizeof(filter->deny)), joins, egress);
}

void jailed_request_template(struct jailed_link *l, const struct sandbox_kind *kind)
{
    const struct filter_spec *filter = &kind->filter;
    struct jail_template m = { .driver = (uint8_t)kind->driver,
                               .profile = (uint8_t)filter->profile,
                               .grants = filter->grants,
                               .joinable = kind->language[0] != '\0',
                               .egress = kind->egress };
    PAYLOAD(payload);

    bool known = jailed_find_template(l, kind) != NULL;
    if (known && l->ntemplates <= TEMPLATES_KEPT_MIN)
        return;
    if (!known) {
        l->templates = mem_resize(l->templates, l->ntemplates + 1, sizeof(*l->templates));
        l->templates[l->ntemplates++] = *kind;
    }
    _Static_assert(JAIL_DENY_WORDS == FILTER_DENY_WORDS, "the set fits into the message");
    memcpy(m.deny, filter->deny, sizeof(m.deny));
    jailed_template_name(kind, m.name);
    int len = jail_template_encode(&m, payload, NULL);
    struct jailed_request *a = jailed_send(l, FRAME_J_TEMPLATE, payload, len > 0 ? (uint32_t)len : 0, NULL, 0,
                                           jailed_on_template, l);
    a->kind = *kind;
}
