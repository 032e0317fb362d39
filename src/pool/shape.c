#include "pool/inside.h"

#include "base/mem.h"
#include "base/str.h"

void shape_done(struct shape *s)
{
    free(s->language);
    free(s->preload);
    free(s->hostname);
    *s = (struct shape){ 0 };
}

void shape_set(struct shape *s, const struct box_spec *like)
{
    struct shape old = *s;

    *s = (struct shape){
        .spec = { .level = like->level, .profile = like->profile, .grants = like->grants, .limits = like->limits }
    };
    memcpy(s->spec.deny, like->deny, sizeof(s->spec.deny));
    if (like->hostname)
        s->spec.hostname = s->hostname = str_dup(like->hostname);
    if (like->zygote) {
        s->zygote.language = s->language = str_dup(like->zygote->language);
        s->zygote.preload = s->preload = str_dup(like->zygote->preload);
        s->spec.zygote = &s->zygote;
    }
    shape_done(&old); /* `like` may have been its own */
}
