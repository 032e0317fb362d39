#include "sandbox/driver/spec.h"

#include "core/base/str.h"

bool sandbox_kind_equal(const struct sandbox_kind *a, const struct sandbox_kind *b)
{
    return a->driver == b->driver && a->filter.profile == b->filter.profile && a->filter.grants == b->filter.grants &&
           memcmp(a->filter.deny, b->filter.deny, sizeof(a->filter.deny)) == 0 && str_eq(a->language, b->language) &&
           a->preload == b->preload && a->egress == b->egress;
}
