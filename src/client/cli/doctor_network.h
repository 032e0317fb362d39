/* doctor_network.h - the result of the attacks on a sandbox with a network. Pure. */
#pragma once

#include "client/cli/doctor_report.h"

/* The network could not be tested: the proxy is missing, or cannot serve this host. */
void doctor_network_set_missing(struct doctor_report *f, const char *why);
/* Reads the output of the probe, which attacked a sandbox that reports this carrier
 * ("tproxy", "proxy"). Fails if the output is malformed. */
int doctor_network_judge(struct doctor_report *f, const char *carrier, const char *text, size_t len, struct err *err);
