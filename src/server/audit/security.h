/* security.h - when refusals are more than mistakes.
 *
 * Refusals are counted for each subject (a key, or an address without one) in windows of a minute. A count that passes
 * its threshold raises an alarm, once in a window. Times are handed in; memory is bounded, and a subject that was quiet
 * for longest gives its place to a new one. */
#pragma once

#include "core/base/base.h"

#define SECURITY_WINDOW_NS (60 * NS_PER_S)
#define SECURITY_SUBJECTS 512u

enum security_kind {
    SECURITY_FAILURES, /* wrong or missing keys */
    SECURITY_PROBING,  /* asks for what it may not, or what is not there */
    SECURITY_FLOOD,    /* goes on when it was told to wait */
    SECURITY_ESCAPE,   /* a program in a sandbox tried what only an attack needs */
    SECURITY_DAMAGE,   /* the log itself */
    SECURITY_KINDS,
};
/* "security.repeated_failures" and so on: the action of its record. */
const char *security_name(enum security_kind k);

struct security;
struct security *security_new(void);
void security_free(struct security *s);
DEFINE_AUTO(security, security_free);

/* A refusal with this status of this subject. True: an alarm, of *ret_count refusals within the window so far. */
bool security_count_refusal(struct security *s, const char *subject, int status, uint64_t now_ns,
                            enum security_kind *ret, unsigned *ret_count);
