#include "sandbox/pool/pool_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

void owned_spec_done(struct owned_spec *s)
{
    free(s->language);
    free(s->preload);
    free(s->hostname);
    *s = (struct owned_spec){ 0 };
}

void owned_spec_set(struct owned_spec *s, const struct sandbox_spec *like)
{
    struct owned_spec old = *s;

    *s = (struct owned_spec){ .spec = { .driver = like->driver,
                                        .network = { .mode = like->network.mode }, /* the claim binds the rules */
                                        .level = like->level,
                                        .profile = like->profile,
                                        .grants = like->grants,
                                        .limits = like->limits } };
    memcpy(s->spec.deny, like->deny, sizeof(s->spec.deny));
    if (like->hostname)
        s->spec.hostname = s->hostname = str_dup(like->hostname);
    if (like->zygote) {
        s->zygote.language = s->language = str_dup(like->zygote->language);
        s->zygote.preload = s->preload = str_dup(like->zygote->preload);
        s->spec.zygote = &s->zygote;
    }
    owned_spec_done(&old); /* `like` may point to the old spec */
}
