/* A pool that orders a new member for each one that it gives away has, at any time, as many on
 * order as were requested during the last refill. If requests arrive independently of each
 * other, at a rate r, and a refill takes t, that number has the Poisson distribution with mean
 * r*t, whatever the distribution of t (Palm's theorem). A request is served when fewer than all
 * members are on order. So the smallest pool that serves a share h of the requests holds
 *
 *     the smallest n with P(orders <= n - 1) >= h.
 *
 * r is estimated from the intervals between arrivals: the plain mean of the first ones, then a
 * moving average. The interval that is still open counts as soon as it is longer than the
 * average, so a rate falls without arrivals. Where more arrivals fall into one refill than the
 * average covers, the average would take a few close arrivals for a lasting rate; there the mean
 * is limited to the count in whole refill times, smoothed over a few of them.
 *
 * Requests are not always independent: an agent that fans out sends fifty at once. The average
 * would need dozens of them to follow. Therefore there is a second term: the number of arrivals
 * within one refill, if it is larger than a Poisson process of that rate would bring in all but
 * a few cases. Without that condition the maximum of many ordinary windows would count as a
 * burst, and every pool would end up far above its hit rate.
 *
 * The target rises at once and falls late: for scale_down_ns it is the maximum that was needed,
 * then the maximum that was needed since. After a pause of that length nothing is needed. Both
 * times are known in advance, so that an idle pool waits for at most one timer, and for none
 * once it is at its minimum.
 *
 * Invariants:
 * 1. min <= target <= max.
 * 2. Sums of times saturate, and differences of times stop at 0.
 * 3. Loops are bounded by EXACT_TERMS.
 * 4. After forecast_target(now), forecast_next_ns is 0 or later than now. */
#include "sandbox/pool/forecast.h"

#include "core/base/clock.h"

#include <math.h>

#define MEMORY 16u                     /* length of the moving average, in arrivals */
#define WINDOW_FIRST (100 * NS_PER_MS) /* until a refill was measured */
#define WINDOW_MIN (1 * NS_PER_MS)
#define WINDOW_MAX (600 * NS_PER_S)
#define DELAY_MIN (1 * NS_PER_S)
#define EXACT_MEAN 64.0 /* above it the sum of terms is replaced by an expansion */
#define EXACT_TERMS 256u
#define FORECAST_SMOOTHING 0.25 /* weight of the latest whole window */
/* A burst is a count that the rate alone would bring this many times less often than a miss is
 * allowed. */
#define FORECAST_BURST_RARITY 64.0

static uint64_t forecast_elapsed(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

static uint64_t forecast_add_saturating(uint64_t at, uint64_t by)
{
    return at > UINT64_MAX - by ? UINT64_MAX : at + by;
}

void forecast_init(struct forecast *f, uint64_t now_ns)
{
    *f = (struct forecast){
        .last_ns = now_ns, .bucket_at = now_ns, .window_ns = WINDOW_FIRST, .pause_ns = UINT64_MAX, .level_at = now_ns
    };
}

static void forecast_rotate_buckets(struct forecast *f, uint64_t now_ns)
{
    uint64_t passed = forecast_elapsed(f->bucket_at, now_ns) / f->window_ns;

    if (passed == 0)
        return;
    f->smoothed_count += (f->current_count - f->smoothed_count) * FORECAST_SMOOTHING;
    f->smoothed_count *= pow(1 - FORECAST_SMOOTHING, (double)(passed - 1)); /* windows without an arrival */
    f->previous_count = passed == 1 ? f->current_count : 0;
    f->current_count = 0;
    f->bucket_at = passed == 1 ? f->bucket_at + f->window_ns : now_ns;
}

void forecast_arrival(struct forecast *f, uint64_t now_ns)
{
    uint64_t interval = forecast_elapsed(f->last_ns, now_ns);

    if (f->arrivals_seen > 0 && interval >= f->pause_ns)
        f->arrivals_seen = 0; /* arrivals before the pause do not predict those after it */
    if (f->arrivals_seen == 1)
        f->interval_ns = interval;
    else if (f->arrivals_seen > 1 && interval > f->interval_ns)
        f->interval_ns += (interval - f->interval_ns) / f->arrivals_seen;
    else if (f->arrivals_seen > 1)
        f->interval_ns -= (f->interval_ns - interval) / f->arrivals_seen;
    if (f->arrivals_seen < MEMORY)
        f->arrivals_seen++;
    if (now_ns > f->last_ns)
        f->last_ns = now_ns;
    forecast_rotate_buckets(f, now_ns);
    if (f->current_count < UINT32_MAX)
        f->current_count++;
}

/* 0: not known yet. */
static double forecast_interval(const struct forecast *f, uint64_t now_ns)
{
    double mean = (double)f->interval_ns, open = (double)forecast_elapsed(f->last_ns, now_ns);

    if (f->arrivals_seen < 2)
        return 0;
    if (open > mean)
        mean += (open - mean) / f->arrivals_seen;
    return mean > 1 ? mean : 1;
}

/* The standard normal quantile of 1 - tail, for tail <= 1/2: the rational approximation of
 * Hastings, accurate to three digits, which is more than the estimate of the rate is. */
static double normal_upper(double tail)
{
    double t = sqrt(-2 * log(tail));

    return t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

static double normal_quantile(double p)
{
    return p < 0.5 ? -normal_upper(p) : normal_upper(1 - p);
}

/* The smallest n with P(Poisson(mean) <= n - 1) >= share; `most` when it is larger. */
static uint32_t forecast_poisson_stock(double mean, double share, uint32_t most)
{
    double term = exp(-mean), sum = term, z, far;
    uint32_t n = 1;

    if (mean <= EXACT_MEAN) {
        while (sum < share && n < EXACT_TERMS && n < most) {
            term *= mean / n;
            sum += term;
            n++;
        }
        return n < most ? n : most;
    }
    /* Cornish-Fisher expansion: the normal quantile, corrected for the skewness of Poisson. */
    z = normal_quantile(share);
    far = mean + z * sqrt(mean) + (z * z - 1) / 6 + 1.5;
    return far < most ? (uint32_t)far : most;
}

static uint32_t forecast_window_count(const struct forecast *f, uint64_t now_ns)
{
    uint64_t into = forecast_elapsed(f->bucket_at, now_ns);
    double left = into < f->window_ns ? 1 - (double)into / (double)f->window_ns : 0;
    double n = (double)f->current_count + (double)f->previous_count * left;

    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Average number of arrivals in one refill time. */
static double forecast_mean(const struct forecast *f, uint64_t now_ns)
{
    double interval = forecast_interval(f, now_ns), mean = interval > 0 ? (double)f->window_ns / interval : 0;

    return mean <= f->arrivals_seen || mean < f->smoothed_count ? mean : f->smoothed_count;
}

static uint32_t forecast_needed(const struct forecast *f, uint64_t now_ns, const struct forecast_settings *set)
{
    double share = (double)set->target_hit_permille / 1000, mean = forecast_mean(f, now_ns);
    uint32_t burst = forecast_window_count(f, now_ns), n = 0;

    if (f->arrivals_seen == 0 || forecast_elapsed(f->last_ns, now_ns) >= f->pause_ns)
        return 0;
    n = forecast_poisson_stock(mean, share, set->max);
    if (burst > n && burst >= forecast_poisson_stock(mean, 1 - (1 - share) / FORECAST_BURST_RARITY, UINT32_MAX))
        n = burst;
    return n;
}

static uint32_t forecast_clamp(uint32_t n, const struct forecast_settings *set)
{
    return n > set->max ? set->max : n < set->min ? set->min : n;
}

static uint64_t forecast_scale_down_delay(const struct forecast_settings *set)
{
    return set->scale_down_ns > DELAY_MIN ? set->scale_down_ns : DELAY_MIN;
}

uint32_t forecast_target(struct forecast *f, uint64_t now_ns, uint64_t refill_ns, const struct forecast_settings *set)
{
    uint64_t window = refill_ns < WINDOW_MIN ? WINDOW_MIN : refill_ns > WINDOW_MAX ? WINDOW_MAX : refill_ns;

    f->pause_ns = forecast_scale_down_delay(set);
    forecast_rotate_buckets(f, now_ns);
    f->smoothed_count *= (double)window / (double)f->window_ns;
    f->window_ns = window;

    uint32_t need = forecast_needed(f, now_ns, set);

    if (need > set->max)
        need = set->max; /* a need above the maximum is not remembered */
    if (need >= f->level) {
        f->level = need;
        f->level_at = now_ns;
        f->lower_level = 0;
    } else if (f->arrivals_seen == 0 || forecast_elapsed(f->last_ns, now_ns) >= f->pause_ns) {
        f->level = f->lower_level = 0;
        f->level_at = now_ns;
    } else if (forecast_elapsed(f->level_at, now_ns) >= f->pause_ns) {
        f->level = f->lower_level > need ? f->lower_level : need;
        f->level_at = now_ns;
        f->lower_level = 0;
    } else if (need > f->lower_level) {
        f->lower_level = need;
    }
    return forecast_clamp(f->level, set);
}

uint64_t forecast_next_ns(const struct forecast *f, const struct forecast_settings *set)
{
    uint64_t from = f->level_at < f->last_ns ? f->level_at : f->last_ns;

    if (forecast_clamp(f->level, set) <= set->min)
        return 0;
    return forecast_add_saturating(from, forecast_scale_down_delay(set));
}

uint64_t forecast_rate_milli(const struct forecast *f, uint64_t now_ns)
{
    double interval = forecast_interval(f, now_ns);

    if (interval <= 0 || forecast_elapsed(f->last_ns, now_ns) >= f->pause_ns)
        return 0;
    return (uint64_t)(1000 * (double)NS_PER_S / interval);
}
