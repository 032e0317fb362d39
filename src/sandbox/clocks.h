/* clocks.h - the four clocks, as arithmetic.
 *
 * `clocks` belongs to one execution (wall, CPU), `life` to a sandbox (lifetime, idle). Nothing here reads a clock or a
 * counter: the caller passes both in, sleeps until *_next() and asks *_check() who fired. While a sandbox is paused its
 * lifetime runs on and the other three stand still. */
#pragma once

#include "core/base/base.h"
#include "sandbox/receipt.h"

#define CLOCKS_NEVER UINT64_MAX
#define CPU_UNKNOWN UINT64_MAX /* the counter could not be read */

/* How fast a tree can possibly burn CPU: its quota, and the processors it can run on at once. */
struct cpu_rate {
    uint64_t quota_milli; /* thousandths of a CPU; 0 is no quota */
    uint32_t cores;
};

struct exec_clocks {
    uint64_t wall_at; /* CLOCKS_NEVER when there is no such clock */
    uint64_t cpu_at;  /* when to read the counter next; CLOCKS_NEVER likewise */
    uint64_t cpu_budget_ns, cpu_base_ns;
    struct cpu_rate rate;
    uint64_t paused_at; /* 0 while it runs */
};

/* 0 ms is no such clock; a counter that cannot be read is no CPU clock either. */
void exec_clocks_start(struct exec_clocks *c, uint64_t wall_ms, uint64_t cpu_ms, struct cpu_rate rate, uint64_t now,
                       uint64_t cpu_ns);
uint64_t exec_clocks_next(const struct exec_clocks *c);
/* True when a clock ran out, with its name. Otherwise the CPU clock may have moved: ask exec_clocks_next() again. */
bool exec_clocks_check(struct exec_clocks *c, uint64_t now, uint64_t cpu_ns, enum ended_by *ret);
void exec_clocks_pause(struct exec_clocks *c, uint64_t now);
void exec_clocks_resume(struct exec_clocks *c, uint64_t now);

struct sandbox_clocks {
    uint64_t lifetime_at;
    uint64_t idle_ns;    /* 0 is no such clock */
    uint64_t idle_since; /* 0 while something runs */
    uint64_t paused_at;
};

void sandbox_clocks_start(struct sandbox_clocks *l, uint64_t lifetime_ms, uint64_t idle_ms, uint64_t now);
void sandbox_clocks_set_busy(struct sandbox_clocks *l);
void sandbox_clocks_set_idle(struct sandbox_clocks *l, uint64_t now);
uint64_t sandbox_clocks_next(const struct sandbox_clocks *l);
bool sandbox_clocks_check(const struct sandbox_clocks *l, uint64_t now, enum ended_by *ret);
void sandbox_clocks_pause(struct sandbox_clocks *l, uint64_t now);
void sandbox_clocks_resume(struct sandbox_clocks *l, uint64_t now);

/* The text of a CPU counter: unit 0 is a bare number of nanoseconds, unit 1 microseconds after "usage_usec ". */
bool cpu_counter_parse(const char *text, uint8_t unit, uint64_t *ret_ns);
uint64_t cpu_counter_read(int fd, uint8_t unit); /* CPU_UNKNOWN when it cannot */

/* How many processes the kernel killed for want of memory; 0 when the file does not say. */
uint64_t oom_kills_parse(const char *text);
uint64_t oom_kills_read(int fd);
