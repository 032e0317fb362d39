#include "policy/network.h"

#include "core/base/str.h"

static const struct {
    const char *name, *summary;
} network_mode_table[] = {
    [NETWORK_NONE] = { "none", "loopback only: no other host can be reached" },
    [NETWORK_EGRESS] = { "egress", "only what the rules allow, through the egress proxy" },
};

const char *network_mode_name(enum network_mode m)
{
    return network_mode_table[m].name;
}

const char *network_mode_summary(enum network_mode m)
{
    return network_mode_table[m].summary;
}

bool network_mode_parse(const char *name, enum network_mode *ret)
{
    for (unsigned i = 0; i < NETWORK_MODES; i++)
        if (str_eq(name, network_mode_table[i].name)) {
            *ret = (enum network_mode)i;
            return true;
        }
    return false;
}

bool network_policy_equal(const struct network_policy *a, const struct network_policy *b)
{
    return a->mode == b->mode && str_eq(a->rules ? a->rules : "", b->rules ? b->rules : "");
}

void network_policy_copy(struct network_policy *to, const struct network_policy *from)
{
    *to = (struct network_policy){ .mode = from->mode, .rules = from->rules ? str_dup(from->rules) : NULL };
}

void network_policy_done(struct network_policy *p)
{
    free((char *)(uintptr_t)p->rules);
    *p = (struct network_policy){ 0 };
}
