/* common.h - functions that the measuring programs share. No code of cove is linked into them,
 * so that cove and its competitors are measured by the same small program. */
#pragma once

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S 1000000000ull

/* Both end the program: a wrong figure would be worse than none. */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...);
uint32_t number(const char *text, uint32_t max);

uint64_t now_ns(void);

/* Sorts them, and prints n, p50, p95 and p99, one per line; with BENCH_SAMPLES in the
 * environment, all samples before that. */
void print_times(uint64_t *ns, size_t n);

/* A new order of n items for each call, drawn from *state: the same seed gives the same orders. */
void shuffle(size_t *order, size_t n, uint32_t *state);
