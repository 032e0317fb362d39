/* doctor_report.h - the result of `cove doctor`: one row for each wall and each limit. Pure: it
 * computes a verdict from text and receipts. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "client/cli/doctor_drivers.h"
#include "sandbox/receipt.h"
#include "policy/policy.h"

#define DOCTOR_FINDINGS_MAX 48
#define DOCTOR_FINDING_SEEN_SIZE 160
#define DOCTOR_PROBE_TEXT_MAX (16 * KIB) /* maximum output of a probe */

enum doctor_finding_state { DOCTOR_FINDING_HELD, DOCTOR_FINDING_PARTIAL, DOCTOR_FINDING_OPEN };

struct doctor_finding {
    const char *name;   /* as in a receipt */
    const char *attack; /* description of the attack */
    bool limit;
    bool needs_root;  /* an unprivileged user cannot have this wall */
    uint8_t enforced; /* for a limit, from the receipt: 0 none, 1 partial, 2 enforced */
    bool missing;     /* for a wall: not in the receipt */
    bool answered, broken;
    char seen[DOCTOR_FINDING_SEEN_SIZE];
};

struct doctor_report {
    struct doctor_finding v[DOCTOR_FINDINGS_MAX];
    size_t n;
    struct doctor_drivers drivers;
    bool rootless;
    uint32_t landlock_abi;
    char cgroup[16];
    char disk_rates[256];           /* result for disk rates, which level standard does not include; "": not tested */
    bool rates_broken;              /* a rate that is reported as enforced did not hold */
    char network[256];              /* result for a sandbox with a network; "": not tested */
    char network_carrier[8];        /* "tproxy", "proxy" or "none" */
    bool network_broken;            /* an attack succeeded */
    char operator_limits_text[256]; /* result for the operator limits; "": none are set */
    bool operator_limits_unmet;     /* this host cannot meet the operator limits, so every run is refused */
};

void doctor_report_init(struct doctor_report *f);
/* Parses the output of a probe: lines of "name TAB held|open TAB observation". The
 * output comes from a sandbox, so every deviation is refused: unknown names, repeated
 * names, unterminated lines. */
int doctor_report_read(struct doctor_report *f, const char *text, size_t len, struct err *err);
const struct doctor_finding *doctor_report_find(const struct doctor_report *f, const char *name); /* NULL: not found */
/* Sets an answer that is known outside the sandbox. The first answer stays, unless the new
 * one is worse. */
void doctor_report_set_answer(struct doctor_report *f, const char *name, bool held, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Compares the operator limits with the walls and limits that this sandbox had; `limits` are the
 * requested limits. */
void doctor_report_check_operator_limits(struct doctor_report *f, const struct operator_limits *floor,
                                         const struct receipt *r, const struct limits *limits);
/* Disk rates are tested separately, in their own rows, and reported as one line of `f`. */
void doctor_report_rates_init(struct doctor_report *rates);
void doctor_report_add_rates(struct doctor_report *f, const struct doctor_report *rates);
/* Adds what the receipt says about the walls, and about the limits whose bit is in `limits`. */
void doctor_report_apply_receipt(struct doctor_report *f, const struct receipt *r, uint64_t limits);

enum doctor_finding_state doctor_finding_get_state(const struct doctor_report *f, const struct doctor_finding *one);
/* 0: level standard is complete. 1: a wall is open, or a limit reported as enforced was
 * exceeded. 3: a wall or limit is only partial, as reported, or this host does not meet
 * the operator limits. */
#define DOCTOR_COMPLETE 0
#define DOCTOR_BROKEN 1
#define DOCTOR_PARTIAL 3
int doctor_report_status(const struct doctor_report *f);

void doctor_report_print(const struct doctor_report *f, struct buf *out);
void doctor_report_json(const struct doctor_report *f, struct buf *out);
