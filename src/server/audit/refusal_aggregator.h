/* refusal_aggregator.h - decides which refusals get a record each and which are only counted.
 *
 * A client decides how often it is refused, so a trail with one line per refusal could be filled by
 * any client. The first REFUSAL_RECORDED_MAX refusals with the same key (principal, action, error)
 * are recorded; later ones within REFUSAL_WINDOW_NS are counted, and the count becomes one record
 * when the window ends. A token bucket shared by all keys bounds the records that many addresses
 * can cause together. A table of fixed size bounds the memory: refusals that find no slot are
 * counted in one shared record.
 *
 * The caller passes the times. */
#pragma once

#include "core/base/base.h"
#include "core/base/id.h"

#define REFUSAL_WINDOW_NS (10 * NS_PER_S)
#define REFUSAL_RECORDED_MAX 5u /* records per key and window */
#define REFUSAL_KEYS_MAX 256u
#define REFUSAL_BURST 300u /* records of all keys together */
#define REFUSAL_RATE 5u    /* per second */

struct refusal_aggregator;

struct refusal_key { /* strings that do not fit are truncated */
    char tenant[65];
    char kind[16];       /* of the principal */
    char actor[ID_SIZE]; /* key id, or "" */
    char user[ID_SIZE];
    char address[48];
    char action[64];
    char error[40];
    int status;
};

struct refusal_summary {
    struct refusal_key key;
    uint64_t count; /* refusals without a record of their own */
    uint64_t since_ms;
};

struct refusal_aggregator *refusal_aggregator_new(void);
void refusal_aggregator_free(struct refusal_aggregator *f);
DEFINE_AUTO(refusal_aggregator, refusal_aggregator_free);

/* True: record this refusal. False: it was counted. */
bool refusal_aggregator_admit(struct refusal_aggregator *f, const struct refusal_key *what, uint64_t now_ns,
                              uint64_t now_ms);
/* Returns the next sum whose window has ended (all: any sum); false when there is none. */
bool refusal_aggregator_next(struct refusal_aggregator *f, uint64_t now_ns, bool all, struct refusal_summary *ret);
/* The earliest time at which a sum is due; 0: there is none. */
uint64_t refusal_aggregator_due_ns(const struct refusal_aggregator *f);
