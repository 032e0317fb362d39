#include "audit/security.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

#define COUNTED 3u /* kinds that are counted */

static const char *const names[SECURITY_KINDS] = { "security.repeated_failures", "security.probing", "security.flood",
                                                   "security.escape_attempt", "security.audit_damaged" };
static const unsigned thresholds[COUNTED] = { 10, 30, 50 };

struct subject {
    char name[64];
    uint64_t since_ns, seen_ns;
    unsigned counts[COUNTED];
    bool told[COUNTED];
};

struct security {
    struct subject subjects[SECURITY_SUBJECTS];
};

const char *security_name(enum security_kind k)
{
    return names[k];
}

struct security *security_new(void)
{
    return mem_new(struct security);
}

void security_free(struct security *s)
{
    free(s);
}

static bool kind_of(int status, enum security_kind *ret)
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

static struct subject *find(struct security *s, const char *name, uint64_t now_ns)
{
    struct subject *oldest = &s->subjects[0];

    for (size_t i = 0; i < SECURITY_SUBJECTS; i++) {
        struct subject *one = &s->subjects[i];

        if (str_eq(one->name, name))
            return one;
        if (one->seen_ns < oldest->seen_ns)
            oldest = one;
    }
    *oldest = (struct subject){ .since_ns = now_ns };
    snprintf(oldest->name, sizeof(oldest->name), "%s", name);
    return oldest;
}

bool security_refusal(struct security *s, const char *subject, int status, uint64_t now_ns, enum security_kind *ret,
                      unsigned *ret_count)
{
    enum security_kind kind;

    if (!*subject || !kind_of(status, &kind))
        return false;
    struct subject *one = find(s, subject, now_ns);
    if (now_ns >= one->since_ns + SECURITY_WINDOW_NS) {
        memset(one->counts, 0, sizeof(one->counts));
        memset(one->told, 0, sizeof(one->told));
        one->since_ns = now_ns;
    }
    one->seen_ns = now_ns;
    if (++one->counts[kind] < thresholds[kind] || one->told[kind])
        return false;
    one->told[kind] = true;
    *ret = kind;
    *ret_count = one->counts[kind];
    return true;
}
