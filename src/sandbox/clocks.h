/* clocks.h - the four clocks, as arithmetic.
 *
 * `exec_clocks` belongs to one execution (wall clock, CPU), `sandbox_clocks` to a sandbox
 * (lifetime, idle). Nothing here reads a clock or a counter: the caller passes both in, sleeps
 * until *_next() and asks *_check() which clock expired. While a sandbox is paused, its lifetime
 * goes on and the other three clocks stop. */
#pragma once

#include "core/base/base.h"
#include "sandbox/driver/spec.h"
#include "sandbox/receipt.h"

#define CLOCKS_NEVER UINT64_MAX
#define CPU_UNKNOWN UINT64_MAX /* the counter could not be read */

/* How fast a process tree can use CPU at most: its quota, and the cores that it can run on at
 * once. */
struct cpu_rate {
    uint64_t quota_milli; /* thousandths of a CPU; 0: no quota */
    uint32_t cores;
};

struct exec_clocks {
    uint64_t wall_at; /* CLOCKS_NEVER: no wall clock limit */
    uint64_t cpu_at;  /* when to read the CPU counter next; CLOCKS_NEVER: no CPU limit */
    uint64_t cpu_budget_ns, cpu_base_ns;
    struct cpu_rate rate;
    uint64_t paused_at; /* 0 while it runs */
};

/* 0 ms means no such clock; if the CPU counter cannot be read there is no CPU clock either. */
void exec_clocks_start(struct exec_clocks *c, uint64_t wall_ms, uint64_t cpu_ms, struct cpu_rate rate, uint64_t now,
                       uint64_t cpu_ns);
uint64_t exec_clocks_next(const struct exec_clocks *c);
/* True when a clock expired, with its name. Otherwise the CPU clock may have moved: call
 * exec_clocks_next() again. */
bool exec_clocks_check(struct exec_clocks *c, uint64_t now, struct cpu_sample cpu, enum ended_by *ret);
void exec_clocks_pause(struct exec_clocks *c, uint64_t now);
void exec_clocks_resume(struct exec_clocks *c, uint64_t now);

struct sandbox_clocks {
    uint64_t lifetime_at;
    uint64_t idle_ns;    /* 0: no idle clock */
    uint64_t idle_since; /* 0 while an execution runs */
    uint64_t paused_at;
};

void sandbox_clocks_start(struct sandbox_clocks *l, uint64_t lifetime_ms, uint64_t idle_ms, uint64_t now);
void sandbox_clocks_set_busy(struct sandbox_clocks *l);
void sandbox_clocks_set_idle(struct sandbox_clocks *l, uint64_t now);
uint64_t sandbox_clocks_next(const struct sandbox_clocks *l);
bool sandbox_clocks_check(const struct sandbox_clocks *l, uint64_t now, enum ended_by *ret);
void sandbox_clocks_pause(struct sandbox_clocks *l, uint64_t now);
void sandbox_clocks_resume(struct sandbox_clocks *l, uint64_t now);

/* Parses the text of a CPU counter: unit 0 is a bare number of nanoseconds, unit 1 is
 * microseconds after "usage_usec ". */
bool cpu_counter_parse(const char *text, uint8_t unit, uint64_t *ret_ns);
uint64_t cpu_counter_read(int fd, uint8_t unit); /* CPU_UNKNOWN if the counter cannot be read */

/* Number of processes that Linux killed for lack of memory; 0 if the file does not contain it. */
uint64_t oom_kills_parse(const char *text);
uint64_t oom_kills_read(int fd);
