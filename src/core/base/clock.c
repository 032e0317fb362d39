#include "core/base/clock.h"

#include <string.h>
#include <time.h>

#define LAST_MS 253402300799999u /* end of the year 9999, the last one with four digits */

static uint64_t clock_read(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

uint64_t clock_real_ns(void)
{
    return clock_read(CLOCK_REALTIME);
}

uint64_t clock_real_ms(void)
{
    return clock_real_ns() / NS_PER_MS;
}

char *clock_rfc3339(uint64_t real_ns, char buf[32])
{
    return clock_rfc3339_ms(real_ns / NS_PER_MS, buf);
}

static void clock_put_digits(char *to, unsigned n, unsigned v)
{
    while (n-- > 0) {
        to[n] = (char)('0' + v % 10);
        v /= 10;
    }
}

/* Does not use strftime, which is slow: every response and every record has several timestamps. */
char *clock_rfc3339_ms(uint64_t real_ms, char buf[32])
{
    uint64_t ms = min_u64(real_ms, LAST_MS);
    time_t s = (time_t)(ms / 1000);
    struct tm tm;

    gmtime_r(&s, &tm);
    memcpy(buf, "0000-00-00T00:00:00.000Z", 25);
    clock_put_digits(buf, 4, (unsigned)tm.tm_year + 1900);
    clock_put_digits(buf + 5, 2, (unsigned)tm.tm_mon + 1);
    clock_put_digits(buf + 8, 2, (unsigned)tm.tm_mday);
    clock_put_digits(buf + 11, 2, (unsigned)tm.tm_hour);
    clock_put_digits(buf + 14, 2, (unsigned)tm.tm_min);
    clock_put_digits(buf + 17, 2, (unsigned)tm.tm_sec);
    clock_put_digits(buf + 20, 3, (unsigned)(ms % 1000));
    return buf;
}

/* Consumes exactly `n` digits: strptime would accept fewer, and leading blanks. */
static bool clock_eat_digits(const char **p, unsigned n, int least, int most, int *ret)
{
    int v = 0;

    for (unsigned i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        v = v * 10 + (**p - '0');
    }
    *ret = v;
    return v >= least && v <= most;
}

static bool clock_eat_char(const char **p, const char *any)
{
    if (!**p || !strchr(any, **p))
        return false;
    (*p)++;
    return true;
}

static bool clock_eat_date(const char **p, struct tm *tm)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    int year, month, day;

    if (!clock_eat_digits(p, 4, 0, 9999, &year) || !clock_eat_char(p, "-") || !clock_eat_digits(p, 2, 1, 12, &month) ||
        !clock_eat_char(p, "-") || !clock_eat_digits(p, 2, 1, 31, &day))
        return false;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    *tm = (struct tm){ .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day };
    return day <= days[month - 1] + (month == 2 && leap);
}

/* Second 60 is a leap second, and the same instant as second 0 of the next minute. */
static bool clock_eat_time(const char **p, struct tm *tm, int *ret_ms)
{
    int unit = 100;

    *ret_ms = 0;
    if (!clock_eat_digits(p, 2, 0, 23, &tm->tm_hour) || !clock_eat_char(p, ":") ||
        !clock_eat_digits(p, 2, 0, 59, &tm->tm_min) || !clock_eat_char(p, ":") ||
        !clock_eat_digits(p, 2, 0, 60, &tm->tm_sec))
        return false;
    if (!clock_eat_char(p, "."))
        return true;
    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++, unit /= 10)
        *ret_ms += (**p - '0') * unit;
    return true;
}

static bool clock_eat_offset(const char **p, int *ret_minutes)
{
    int hours, minutes;
    bool west = **p == '-';

    *ret_minutes = 0;
    if (clock_eat_char(p, "Zz"))
        return true;
    if (!clock_eat_char(p, "+-") || !clock_eat_digits(p, 2, 0, 23, &hours) || !clock_eat_char(p, ":") ||
        !clock_eat_digits(p, 2, 0, 59, &minutes))
        return false;
    *ret_minutes = (hours * 60 + minutes) * (west ? -1 : 1);
    return true;
}

bool clock_from_rfc3339(const char *text, uint64_t *ret_ms)
{
    const char *p = text;
    struct tm tm;
    int ms, minutes;

    if (!clock_eat_date(&p, &tm) || !clock_eat_char(&p, "Tt") || !clock_eat_time(&p, &tm, &ms) ||
        !clock_eat_offset(&p, &minutes) || *p)
        return false;
    int64_t s = (int64_t)timegm(&tm) - (int64_t)minutes * 60;
    if (s < 0)
        return false;
    *ret_ms = (uint64_t)s * 1000 + (uint64_t)ms;
    return true;
}
