#include "server/audit/security.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define COUNTED 3u /* kinds that have a counter */

static const char *const security_names[SECURITY_KINDS] = {
    "security.repeated_failures", "security.probing",       "security.flood",
    "security.escape_attempt",    "security.audit_damaged", "security.destination_refused"
};
static const unsigned security_thresholds[COUNTED] = { 10, 30, 50 };

struct security_subject {
    char name[64];
    uint64_t since_ns, seen_ns;
    unsigned counts[COUNTED];
    bool alarm_raised[COUNTED];
};

struct security {
    struct security_subject subjects[SECURITY_SUBJECTS];
};

const char *security_name(enum security_kind k)
{
    return security_names[k];
}

struct security *security_new(void)
{
    return mem_new(struct security);
}

void security_free(struct security *s)
{
    free(s);
}

static bool security_kind_of_status(int status, enum security_kind *ret)
{
    switch (status) {
    case 401:
        *ret = SECURITY_FAILURES;
        return true;
    case 403:
    case 404:
    case 421:
        *ret = SECURITY_PROBING;
        return true;
    case 429:
        *ret = SECURITY_FLOOD;
        return true;
    default:
        return false;
    }
}

static struct security_subject *security_find_subject(struct security *s, const char *name, uint64_t now_ns)
{
    struct security_subject *oldest = &s->subjects[0];

    for (size_t i = 0; i < SECURITY_SUBJECTS; i++) {
        struct security_subject *one = &s->subjects[i];

        if (str_eq(one->name, name))
            return one;
        if (one->seen_ns < oldest->seen_ns)
            oldest = one;
    }
    *oldest = (struct security_subject){ .since_ns = now_ns };
    snprintf(oldest->name, sizeof(oldest->name), "%s", name);
    return oldest;
}

bool security_count_refusal(struct security *s, const char *subject, int status, uint64_t now_ns,
                            enum security_kind *ret, unsigned *ret_count)
{
    enum security_kind kind;

    if (!*subject || !security_kind_of_status(status, &kind))
        return false;
    struct security_subject *one = security_find_subject(s, subject, now_ns);
    if (now_ns >= one->since_ns + SECURITY_WINDOW_NS) {
        memset(one->counts, 0, sizeof(one->counts));
        memset(one->alarm_raised, 0, sizeof(one->alarm_raised));
        one->since_ns = now_ns;
    }
    one->seen_ns = now_ns;
    if (++one->counts[kind] < security_thresholds[kind] || one->alarm_raised[kind])
        return false;
    one->alarm_raised[kind] = true;
    *ret = kind;
    *ret_count = one->counts[kind];
    return true;
}
