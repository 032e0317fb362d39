/* A bucket is stored as one point in time instead of a token count: `full_at`, the time at which it
 * will be full again. Taking a token moves that time one interval later; the bucket is empty when
 * it is a whole window ahead. So there is no refill timer, no floating point, and an idle key costs
 * nothing (GCRA). */
#include "server/auth/ratelimit.h"

#include "core/base/str.h"

#define RATE_MAX 1000000u /* keeps interval_ns above zero and window_ns far from overflow */

int ratelimit_parse(const char *text, struct ratelimit_rule *ret, struct err *err)
{
    const char *p = text;
    uint64_t unit;
    uint32_t rate, burst;

    if (str_eq(text, "none")) {
        *ret = (struct ratelimit_rule){ 0 };
        return 0;
    }
    if (!str_eat_u32(&p, RATE_MAX, &rate) || rate == 0)
        return err_set(err, ERR_INVALID, "rate limit '%s' must begin with a number from 1 to %u", text, RATE_MAX);
    if (str_eat(&p, "/s"))
        unit = NS_PER_S;
    else if (str_eat(&p, "/m"))
        unit = 60 * NS_PER_S;
    else if (str_eat(&p, "/h"))
        unit = 3600 * NS_PER_S;
    else
        return err_set(err, ERR_INVALID, "rate limit '%s' must contain /s, /m or /h", text);
    burst = rate;
    if (str_eat(&p, " burst ") && (!str_eat_u32(&p, RATE_MAX, &burst) || burst == 0))
        return err_set(err, ERR_INVALID, "rate limit '%s' has an invalid burst", text);
    if (*p != '\0')
        return err_set(err, ERR_INVALID, "rate limit '%s' has text after its end", text);
    ret->interval_ns = unit / rate;
    ret->window_ns = ret->interval_ns * burst;
    ret->burst = burst;
    return 0;
}

/* The level of the bucket as a time: a full bucket counts from now. */
static uint64_t ratelimit_level_ns(const struct ratelimit *rl, uint64_t now_ns)
{
    return rl->full_at > now_ns ? rl->full_at : now_ns;
}

bool ratelimit_has_token(const struct ratelimit_rule *rule, const struct ratelimit *rl, uint64_t now_ns)
{
    return rule->interval_ns == 0 || ratelimit_level_ns(rl, now_ns) + rule->interval_ns <= now_ns + rule->window_ns;
}

bool ratelimit_take(const struct ratelimit_rule *rule, struct ratelimit *rl, uint64_t now_ns,
                    struct ratelimit_answer *ret)
{
    bool taken = ratelimit_has_token(rule, rl, now_ns);

    *ret = (struct ratelimit_answer){ .limit = rule->burst, .window_ns = rule->window_ns };
    if (rule->interval_ns == 0)
        return true;
    if (taken)
        rl->full_at = ratelimit_level_ns(rl, now_ns) + rule->interval_ns;
    ret->reset_ns = ratelimit_level_ns(rl, now_ns) - now_ns;
    ret->remaining = (uint32_t)((rule->window_ns - min_u64(ret->reset_ns, rule->window_ns)) / rule->interval_ns);
    if (!taken)
        ret->retry_ns = ret->reset_ns + rule->interval_ns - rule->window_ns;
    return taken;
}
