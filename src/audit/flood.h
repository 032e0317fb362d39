/* flood.h - which refusals are recorded one by one, and which are only counted.
 *
 * Whoever is refused decides how often that happens, so a log that had a line for each could be filled by anybody. The
 * first few of a kind (who, what, why) are recorded; those that follow within FLOOD_WINDOW are counted, and their
 * number becomes one record when the window is over. A bucket for everybody bounds what many addresses can do together,
 * and a table of fixed size the memory: what finds no place in it is counted in one line for all.
 *
 * Times are handed in. */
#pragma once

#include "base/base.h"
#include "base/id.h"

#define FLOOD_WINDOW_NS (10 * NS_PER_S)
#define FLOOD_SINGLE 5u /* of one kind in one window */
#define FLOOD_KINDS 256u
#define FLOOD_BURST 300u /* of all kinds together */
#define FLOOD_RATE 5u    /* a second */

struct flood;

struct flood_kind { /* texts that do not fit are cut */
    char tenant[65];
    char kind[16];       /* of the actor */
    char actor[ID_SIZE]; /* a key's id, or "" */
    char user[ID_SIZE];
    char address[48];
    char action[64];
    char error[40];
    int status;
};

struct flood_sum {
    struct flood_kind what;
    uint64_t count; /* that were not recorded one by one */
    uint64_t since_ms;
};

struct flood *flood_new(void);
void flood_free(struct flood *f);
DEFINE_AUTO(flood, flood_free);

/* True: record this one. False: it was counted. */
bool flood_take(struct flood *f, const struct flood_kind *what, uint64_t now_ns, uint64_t now_ms);
/* The next sum whose window is over (all: or not); false when there is none. */
bool flood_next(struct flood *f, uint64_t now_ns, bool all, struct flood_sum *ret);
/* When there is something to sum up at the earliest; 0: there is nothing. */
uint64_t flood_due(const struct flood *f);
