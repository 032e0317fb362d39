/* An address may fail ATTEMPTS times in a burst and then once per ATTEMPT_EVERY: enough for a user
 * with a few keys, and 10 attempts per minute are negligible against 160 bits. The table evicts the
 * address whose bucket is closest to full. */
#include "server/auth/throttle.h"

#include "server/auth/ratelimit.h"
#include "server/auth/bounded_table.h"
#include "core/base/mem.h"

#include <arpa/inet.h>

#define ROWS 128u
#define ATTEMPTS 10u
#define ATTEMPT_EVERY (6 * NS_PER_S)
#define THROTTLE_ALL_PER_S 500u /* burst, and attempts per second, of all addresses together */
#define LOOKS 100u              /* the same for throttled addresses */

struct throttle_slot {
    uint8_t name[16];
    struct ratelimit failures;
};

struct throttle {
    struct bounded_table table;
    struct ratelimit_rule rule, rule_all, rule_lookups;
    struct ratelimit all, lookups;
    struct throttle_slot slots[ROWS * BOUNDED_TABLE_WAYS];
};

struct throttle *throttle_new(void)
{
    struct throttle *t = mem_new(struct throttle);

    bounded_table_init(&t->table, ROWS);
    t->rule = (struct ratelimit_rule){ ATTEMPT_EVERY, ATTEMPTS * ATTEMPT_EVERY, ATTEMPTS };
    t->rule_all = (struct ratelimit_rule){ NS_PER_S / THROTTLE_ALL_PER_S,
                                           NS_PER_S / THROTTLE_ALL_PER_S * THROTTLE_ALL_PER_S, THROTTLE_ALL_PER_S };
    t->rule_lookups = (struct ratelimit_rule){ NS_PER_S / LOOKS, NS_PER_S, LOOKS };
    return t;
}

void throttle_free(struct throttle *t)
{
    free(t);
}

/* The part of an address that is counted. All peers without an address, such as local ones, share
 * one bucket. */
static void throttle_address_key(const char *peer, uint8_t name[16])
{
    uint8_t v6[16], v4[4];
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

    memset(name, 0, 16);
    if (peer && inet_pton(AF_INET, peer, v4) == 1) {
        name[0] = 4;
        memcpy(name + 1, v4, 4);
    } else if (peer && inet_pton(AF_INET6, peer, v6) == 1) {
        bool v4_inside = memcmp(v6, mapped, sizeof(mapped)) == 0;

        name[0] = v4_inside ? 4 : 6;
        memcpy(name + 1, v4_inside ? v6 + 12 : v6, v4_inside ? 4 : 8);
    }
}

/* Finds the slot of an address, or the slot to evict for it. */
static struct throttle_slot *throttle_find_slot(struct throttle *t, const char *peer, bool make)
{
    uint8_t name[16];
    struct throttle_slot *row, *least;

    throttle_address_key(peer, name);
    row = least = &t->slots[bounded_table_row(&t->table, name, sizeof(name))];
    for (size_t i = 0; i < BOUNDED_TABLE_WAYS; i++) {
        if (memcmp(row[i].name, name, sizeof(name)) == 0)
            return &row[i];
        if (row[i].failures.full_at < least->failures.full_at)
            least = &row[i];
    }
    if (!make)
        return NULL;
    memcpy(least->name, name, sizeof(name));
    least->failures = (struct ratelimit){ 0 };
    return least;
}

static uint64_t throttle_wait_ns(const struct ratelimit_rule *rule, const struct ratelimit *rl, uint64_t now_ns)
{
    struct ratelimit copy = *rl;
    struct ratelimit_answer answer;

    ratelimit_take(rule, &copy, now_ns, &answer);
    return answer.retry_ns;
}

bool throttle_may_try(struct throttle *t, const char *peer, uint64_t now_ns, uint64_t *retry_ns)
{
    const struct throttle_slot *place = throttle_find_slot(t, peer, false);
    uint64_t own = place ? throttle_wait_ns(&t->rule, &place->failures, now_ns) : 0;

    *retry_ns = max_u64(own, throttle_wait_ns(&t->rule_all, &t->all, now_ns));
    return *retry_ns == 0;
}

bool throttle_may_look_up(struct throttle *t, uint64_t now_ns)
{
    struct ratelimit_answer answer;

    return ratelimit_take(&t->rule_lookups, &t->lookups, now_ns, &answer);
}

void throttle_record_failure(struct throttle *t, const char *peer, uint64_t now_ns)
{
    struct ratelimit_answer answer;

    ratelimit_take(&t->rule, &throttle_find_slot(t, peer, true)->failures, now_ns, &answer);
    ratelimit_take(&t->rule_all, &t->all, now_ns, &answer);
}
