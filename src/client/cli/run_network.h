/* run_network.h - the flags of `cove run` about the network: --net, --allow, --deny, --secret. Part
 * of run_options.h. */
#pragma once

#include "client/cli/run_options.h"
#include "policy/egress_rules.h"

int run_network_read_mode(struct run_options *r, const char *text, struct err *err);
int run_network_read_rule(struct run_options *r, enum egress_action action, const char *target, struct err *err);
/* NAME=ENVVAR@HOST[:PORT][,header=H][,format=F]; NAME=ENVVAR if the policy binds the secret. */
int run_network_read_secret(struct run_options *r, const char *text, struct err *err);
/* After all flags: puts the operator's denials first, then the flags' rules, then the policy's. */
int run_network_complete(struct run_options *r, struct err *err);
void run_network_done(struct run_options *r);
