#include "policy/network.h"

#include "core/base/str.h"

static const char *const network_mode_names[] = { [NETWORK_NONE] = "none" };

const char *network_mode_name(enum network_mode m)
{
    return network_mode_names[m];
}

bool network_mode_parse(const char *name, enum network_mode *ret)
{
    for (unsigned i = 0; i < NETWORK_MODES; i++)
        if (str_eq(name, network_mode_names[i])) {
            *ret = (enum network_mode)i;
            return true;
        }
    return false;
}

bool network_policy_equal(const struct network_policy *a, const struct network_policy *b)
{
    return a->mode == b->mode;
}
