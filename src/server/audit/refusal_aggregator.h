/* refusal_aggregator.h - which refusals are recorded one by one, and which are only counted.
 *
 * Whoever is refused decides how often that happens, so a log that had a line for each could be filled by anybody. The
 * first few of a kind (who, what, why) are recorded; those that follow within FLOOD_WINDOW are counted, and their
 * number becomes one record when the window is over. A bucket for everybody bounds what many addresses can do together,
 * and a table of fixed size the memory: what finds no place in it is counted in one line for all.
 *
 * Times are handed in. */
#pragma once

#include "core/base/base.h"
#include "core/base/id.h"

#define REFUSAL_WINDOW_NS (10 * NS_PER_S)
#define REFUSAL_RECORDED_MAX 5u /* of one kind in one window */
#define REFUSAL_KEYS_MAX 256u
#define REFUSAL_BURST 300u /* of all kinds together */
#define REFUSAL_RATE 5u    /* a second */

struct refusal_aggregator;

struct refusal_key { /* texts that do not fit are cut */
    char tenant[65];
    char kind[16];       /* of the actor */
    char actor[ID_SIZE]; /* a key's id, or "" */
    char user[ID_SIZE];
    char address[48];
    char action[64];
    char error[40];
    int status;
};

struct refusal_summary {
    struct refusal_key key;
    uint64_t count; /* that were not recorded one by one */
    uint64_t since_ms;
};

struct refusal_aggregator *refusal_aggregator_new(void);
void refusal_aggregator_free(struct refusal_aggregator *f);
DEFINE_AUTO(refusal_aggregator, refusal_aggregator_free);

/* True: record this one. False: it was counted. */
bool refusal_aggregator_admit(struct refusal_aggregator *f, const struct refusal_key *what, uint64_t now_ns,
                              uint64_t now_ms);
/* The next sum whose window is over (all: or not); false when there is none. */
bool refusal_aggregator_next(struct refusal_aggregator *f, uint64_t now_ns, bool all, struct refusal_summary *ret);
/* When there is something to sum up at the earliest; 0: there is nothing. */
uint64_t refusal_aggregator_due_ns(const struct refusal_aggregator *f);
