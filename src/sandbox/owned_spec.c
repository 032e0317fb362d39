#include "sandbox/owned_spec.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine_internal.h"

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

    *s = (struct owned_spec){ .spec = sandbox_spec_unclaimed(like) };
    if (like->hostname)
        s->spec.hostname = s->hostname = str_dup(like->hostname);
    if (like->zygote) {
        s->zygote.language = s->language = str_dup(like->zygote->language);
        s->zygote.preload = s->preload = str_dup(like->zygote->preload);
        s->spec.zygote = &s->zygote;
    }
    owned_spec_done(&old); /* `like` may point to the old spec */
}
