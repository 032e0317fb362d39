#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_real_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

char *clock_rfc3339(uint64_t real_ns, char buf[32])
{
    time_t s = (time_t)(real_ns / NS_PER_S);
    struct tm tm;

    gmtime_r(&s, &tm);
    size_t n = strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, 32 - n, ".%03uZ", (unsigned)(real_ns % NS_PER_S / NS_PER_MS));
    return buf;
}
