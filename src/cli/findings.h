/* findings.h - what `cove doctor` found: a row for each wall and each limit. Pure: text and receipts go in, a verdict
 * comes out. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "engine/receipt.h"
#include "policy/policy.h"

#define FINDINGS_MAX 48
#define FINDINGS_SEEN 160
#define FINDINGS_TEXT (16 * KIB) /* a probe never has more to say */

enum finding_state { FINDING_HELD, FINDING_PARTIAL, FINDING_OPEN };

struct finding {
    const char *name;  /* as in a receipt */
    const char *tried; /* what the attack was */
    bool limit;
    bool needs_root;  /* a plain user cannot have this wall */
    uint8_t enforced; /* of a limit: 0 none, 1 partial, 2 enforced, by the receipt */
    bool missing;     /* of a wall: the receipt does not have it */
    bool answered, broken;
    char seen[FINDINGS_SEEN];
};

struct findings {
    struct finding v[FINDINGS_MAX];
    size_t n;
    bool rootless;
    uint32_t landlock_abi;
    char cgroup[16];
    char disk_rates[256]; /* how fast disks are is not of standard; "" when nobody looked */
    bool rates_broken;    /* but a rate that is called enforced has to hold */
    char floor[256];      /* what the operator demands of this host; "" when there is no floor */
    bool floor_unmet;     /* and this host cannot have it, so that every run is refused */
};

void findings_init(struct findings *f);
/* Reads what a probe wrote: lines of "name TAB held|open TAB what was seen". It comes out of a sandbox, so whatever is
 * not exactly that is refused: other names, names that were answered before, lines without an end. */
int findings_read(struct findings *f, const char *text, size_t len, struct err *err);
const struct finding *findings_find(const struct findings *f, const char *name); /* NULL when there is none */
/* An answer that is known from outside. The first answer stays, unless this one is worse. */
void findings_answer(struct findings *f, const char *name, bool held, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* Holds what an operator demands against what this sandbox had; `limits` are those that it asked for. */
void findings_floor(struct findings *f, const struct floor *floor, const struct receipt *r,
                    const struct limits *limits);
/* Disk rates are tried apart, in rows of their own, and told in one line of `f`. */
void findings_rates_init(struct findings *rates);
void findings_rates(struct findings *f, const struct findings *rates);
/* What the sandbox itself says of its walls, and of the limits whose bit is in `limits`. */
void findings_weigh(struct findings *f, const struct receipt *r, uint64_t limits);

enum finding_state finding_state(const struct findings *f, const struct finding *one);
/* 0: all of standard holds. 1: a wall is open, or a limit that is said to be enforced was broken. 3: something is there
 * in part only, and said so, or the operator demands more than this host has. */
#define FINDINGS_COMPLETE 0
#define FINDINGS_BROKEN 1
#define FINDINGS_PARTIAL 3
int findings_status(const struct findings *f);

void findings_print(const struct findings *f, struct buf *out);
void findings_json(const struct findings *f, struct buf *out);
