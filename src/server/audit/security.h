/* security.h - detects refusals that indicate an attack rather than a mistake.
 *
 * Refusals are counted per subject (a key, or an address without a key) in windows of one minute. A
 * count that reaches its threshold raises one alarm per window. The caller passes the times. Memory
 * is bounded: a new subject replaces the subject that was quiet for the longest time. */
#pragma once

#include "core/base/base.h"

#define SECURITY_WINDOW_NS (60 * NS_PER_S)
#define SECURITY_SUBJECTS 512u

enum security_kind {
    SECURITY_FAILURES, /* wrong or missing credentials */
    SECURITY_PROBING,  /* requests for forbidden or missing objects */
    SECURITY_FLOOD,    /* requests that continue after status 429 */
    SECURITY_ESCAPE,   /* a program in a sandbox made a system call that only attacks use */
    SECURITY_DAMAGE,   /* the audit trail was modified */
    SECURITY_EGRESS,   /* a program in a sandbox asked for destinations that its rules refuse */
    SECURITY_KINDS,
};
/* The action of its record, for example "security.repeated_failures". */
const char *security_name(enum security_kind k);

struct security;
struct security *security_new(void);
void security_free(struct security *s);
DEFINE_AUTO(security, security_free);

/* Counts a refusal of this subject with this status. True: an alarm; *ret_count is the number of
 * refusals in the window so far. */
bool security_count_refusal(struct security *s, const char *subject, int status, uint64_t now_ns,
                            enum security_kind *ret, unsigned *ret_count);
