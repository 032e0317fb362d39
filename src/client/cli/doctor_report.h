/* doctor_report.h - what `cove doctor` found: a row for each wall and each limit. Pure: text and
 * receipts go in, a verdict comes out. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "sandbox/receipt.h"
#include "policy/policy.h"

#define DOCTOR_FINDINGS_MAX 48
#define DOCTOR_FINDING_SEEN_SIZE 160
#define DOCTOR_PROBE_TEXT_MAX (16 * KIB) /* a probe never has more to say */

enum doctor_finding_state { DOCTOR_FINDING_HELD, DOCTOR_FINDING_PARTIAL, DOCTOR_FINDING_OPEN };

struct doctor_finding {
    const char *name;   /* as in a receipt */
    const char *attack; /* what the attack was */
    bool limit;
    bool needs_root;  /* a plain user cannot have this wall */
    uint8_t enforced; /* of a limit: 0 none, 1 partial, 2 enforced, by the receipt */
    bool missing;     /* of a wall: the receipt does not have it */
    bool answered, broken;
    char seen[DOCTOR_FINDING_SEEN_SIZE];
};

struct doctor_report {
    struct doctor_finding v[DOCTOR_FINDINGS_MAX];
    size_t n;
    bool rootless;
    uint32_t landlock_abi;
    char cgroup[16];
    char disk_rates[256];           /* how fast disks are is not of standard; "" when nobody looked */
    bool rates_broken;              /* but a rate that is called enforced has to hold */
    char operator_limits_text[256]; /* what the operator demands of this host; "" when there is no floor */
    bool operator_limits_unmet;     /* and this host cannot have it, so that every run is refused */
};

void doctor_report_init(struct doctor_report *f);
/* Reads what a probe wrote: lines of "name TAB held|open TAB what was seen". It comes out of a
 * sandbox, so whatever is not exactly that is refused: other names, names that were answered
 * before, lines without an end. */
int doctor_report_read(struct doctor_report *f, const char *text, size_t len, struct err *err);
const struct doctor_finding *doctor_report_find(const struct doctor_report *f,
                                                const char *name); /* NULL when there is none */
/* An answer that is known from outside. The first answer stays, unless this one is worse. */
void doctor_report_set_answer(struct doctor_report *f, const char *name, bool held, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Holds what an operator demands against what this sandbox had; `limits` are those that it asked
 * for. */
void doctor_report_check_operator_limits(struct doctor_report *f, const struct operator_limits *floor,
                                         const struct receipt *r, const struct limits *limits);
/* Disk rates are tried apart, in rows of their own, and told in one line of `f`. */
void doctor_report_rates_init(struct doctor_report *rates);
void doctor_report_add_rates(struct doctor_report *f, const struct doctor_report *rates);
/* What the sandbox itself says of its walls, and of the limits whose bit is in `limits`. */
void doctor_report_apply_receipt(struct doctor_report *f, const struct receipt *r, uint64_t limits);

enum doctor_finding_state doctor_finding_get_state(const struct doctor_report *f, const struct doctor_finding *one);
/* 0: all of standard holds. 1: a wall is open, or a limit that is said to be enforced was broken.
 * 3: something is there in part only, and said so, or the operator demands more than this host
 * has. */
#define DOCTOR_COMPLETE 0
#define DOCTOR_BROKEN 1
#define DOCTOR_PARTIAL 3
int doctor_report_status(const struct doctor_report *f);

void doctor_report_print(const struct doctor_report *f, struct buf *out);
void doctor_report_json(const struct doctor_report *f, struct buf *out);
