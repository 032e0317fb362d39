/* network.h - what a sandbox may reach outside of itself. Data only.
 *
 * NETWORK_NONE is the only mode until a way out exists: the sandbox has loopback and nothing else.
 * The struct has its place in policies, specs, plans, the messages to the jailer and receipts, so
 * that a rule cannot get lost between them. */
#pragma once

#include "core/base/base.h"

enum network_mode { NETWORK_NONE, NETWORK_MODES };

struct network_policy {
    enum network_mode mode;
};

const char *network_mode_name(enum network_mode m);
const char *network_mode_summary(enum network_mode m);
bool network_mode_parse(const char *name, enum network_mode *ret);
bool network_policy_equal(const struct network_policy *a, const struct network_policy *b);
