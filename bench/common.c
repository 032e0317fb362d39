#define _GNU_SOURCE 1
#include "common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

uint32_t number(const char *text, uint32_t max)
{
    char *end;
    errno = 0;
    unsigned long v = strtoul(text, &end, 10);

    if (errno != 0 || end == text || *end != '\0' || v > max)
        die("'%s' is not a number up to %" PRIu32, text, max);
    return (uint32_t)v;
}

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint32_t draw(uint32_t *state) /* xorshift: an order that can be reproduced */
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

void shuffle(size_t *order, size_t n, uint32_t *state)
{
    for (size_t left = n; left > 1; left--) {
        size_t j = draw(state) % left, keep = order[left - 1];

        order[left - 1] = order[j];
        order[j] = keep;
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void print_times(uint64_t *ns, size_t n)
{
    if (n == 0)
        die("nothing was measured");
    qsort(ns, n, sizeof(ns[0]), by_size);
    for (size_t i = 0; getenv("BENCH_SAMPLES") && i < n; i++)
        printf("sample\t%" PRIu64 "\n", ns[i]);
    printf("n\t%zu\np50\t%" PRIu64 "\np95\t%" PRIu64 "\np99\t%" PRIu64 "\n", n, ns[n / 2], ns[n * 95 / 100],
           ns[n * 99 / 100]);
}
