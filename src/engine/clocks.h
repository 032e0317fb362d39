/* clocks.h - the four clocks, as arithmetic.
 *
 * `clocks` belongs to one execution (wall, CPU), `life` to a sandbox (lifetime, idle). Nothing here reads a clock or a
 * counter: the caller passes both in, sleeps until *_next() and asks *_check() who fired. While a sandbox is paused its
 * lifetime runs on and the other three stand still. */
#pragma once

#include "base/base.h"
#include "engine/receipt.h"

#define CLOCKS_NEVER UINT64_MAX
#define CPU_UNKNOWN UINT64_MAX /* the counter could not be read */

/* How fast a tree can possibly burn CPU: its quota, and the processors it can run on at once. */
struct cpu_rate {
    uint64_t quota_milli; /* thousandths of a CPU; 0 is no quota */
    uint32_t cores;
};

struct clocks {
    uint64_t wall_at; /* CLOCKS_NEVER when there is no such clock */
    uint64_t cpu_at;  /* when to read the counter next; CLOCKS_NEVER likewise */
    uint64_t cpu_budget_ns, cpu_base_ns;
    struct cpu_rate rate;
    uint64_t paused_at; /* 0 while it runs */
};

/* 0 ms is no such clock; a counter that cannot be read is no CPU clock either. */
void clocks_start(struct clocks *c, uint64_t wall_ms, uint64_t cpu_ms, struct cpu_rate rate, uint64_t now,
                  uint64_t cpu_ns);
uint64_t clocks_next(const struct clocks *c);
/* True when a clock ran out, with its name. Otherwise the CPU clock may have moved: ask clocks_next() again. */
bool clocks_check(struct clocks *c, uint64_t now, uint64_t cpu_ns, enum ended_by *ret);
void clocks_pause(struct clocks *c, uint64_t now);
void clocks_resume(struct clocks *c, uint64_t now);

struct life {
    uint64_t lifetime_at;
    uint64_t idle_ns;    /* 0 is no such clock */
    uint64_t idle_since; /* 0 while something runs */
    uint64_t paused_at;
};

void life_start(struct life *l, uint64_t lifetime_ms, uint64_t idle_ms, uint64_t now);
void life_busy(struct life *l);
void life_idle(struct life *l, uint64_t now);
uint64_t life_next(const struct life *l);
bool life_check(const struct life *l, uint64_t now, enum ended_by *ret);
void life_pause(struct life *l, uint64_t now);
void life_resume(struct life *l, uint64_t now);

/* The text of a CPU counter: unit 0 is a bare number of nanoseconds, unit 1 microseconds after "usage_usec ". */
bool cpu_parse(const char *text, uint8_t unit, uint64_t *ret_ns);
uint64_t cpu_read(int fd, uint8_t unit); /* CPU_UNKNOWN when it cannot */

/* How many processes the kernel killed for want of memory; 0 when the file does not say. */
uint64_t oom_parse(const char *text);
uint64_t oom_read(int fd);
