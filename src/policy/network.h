/* network.h - what a sandbox may reach outside of itself. Data only.
 *
 * NETWORK_NONE: loopback and nothing else; the sandbox costs nothing for a network. NETWORK_EGRESS:
 * the sandbox has listeners of the egress proxy, which follows the rules. The mode is fixed when
 * the sandbox is made, the rules are bound when it is claimed and may change later. */
#pragma once

#include "core/base/base.h"

enum network_mode { NETWORK_NONE, NETWORK_EGRESS, NETWORK_MODES };

struct network_policy {
    enum network_mode mode;
    /* Canonical text of policy/egress_rules.h; NULL or "": nothing is allowed. The holder of the
     * struct says whether it owns the text. */
    const char *rules;
};

const char *network_mode_name(enum network_mode m);
const char *network_mode_summary(enum network_mode m);
bool network_mode_parse(const char *name, enum network_mode *ret);
/* Compares the rules too. Whether a pool member fits depends on the mode alone. */
bool network_policy_equal(const struct network_policy *a, const struct network_policy *b);
/* For holders that own the text. */
void network_policy_copy(struct network_policy *to, const struct network_policy *from);
void network_policy_done(struct network_policy *p);
