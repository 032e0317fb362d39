/* scene_faults.h - a clock that tests move, and a store that refuses.
 *
 * A program with this header is linked with --wrap (tests/unit/meson.build):
 * - clock_gettime: the monotonic clock can be moved and stopped, so no test sleeps;
 * - sqlite3_step: the store refuses chosen statements. */
#pragma once

#include "tests/unit/sandbox/fake.h"

#include "core/base/clock.h"

#include <sqlite3.h>
#include <stdatomic.h>

/* --- the clock --- */

static atomic_ullong clock_ahead_ns; /* added to the monotonic clock */
static atomic_ullong clock_held_ns;  /* the monotonic clock stands still at this time; 0: it runs */

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
    int rc = __real_clock_gettime(id, ret);
    uint64_t ns = (uint64_t)ret->tv_sec * NS_PER_S + (uint64_t)ret->tv_nsec, held = atomic_load(&clock_held_ns);

    if (id == CLOCK_MONOTONIC) {
        ns = (held ? held : ns) + atomic_load(&clock_ahead_ns);
        ret->tv_sec = (time_t)(ns / NS_PER_S);
        ret->tv_nsec = (long)(ns % NS_PER_S);
    }
    return rc;
}

/* Stops the clock while a test does what has to be quick, however slow the host is. */
static inline void clock_hold(bool hold)
{
    struct timespec now;

    __real_clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&clock_held_ns, hold ? (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec : 0);
}

/* --- a store that refuses --- */

static _Atomic(const char *) refused_sql; /* beginning of the statements that are refused */
static atomic_int refusals_left;

int __real_sqlite3_step(sqlite3_stmt *st);
int __wrap_sqlite3_step(sqlite3_stmt *st);

int __wrap_sqlite3_step(sqlite3_stmt *st)
{
    const char *sql = atomic_load(&refused_sql);

    if (sql && atomic_load(&refusals_left) > 0 && str_starts(sqlite3_sql(st), sql)) {
        atomic_fetch_sub(&refusals_left, 1);
        return SQLITE_IOERR;
    }
    return __real_sqlite3_step(st);
}

#define SANDBOX_INSERT "INSERT INTO sandboxes"
#define SANDBOX_STATE_UPDATE "UPDATE sandboxes SET state"
#define SANDBOX_SPEC_UPDATE "UPDATE sandboxes SET spec"
#define EXECUTION_INSERT "INSERT INTO executions"
#define EXECUTION_UPDATE "UPDATE executions SET state"

/* The next n statements with this beginning fail with ERR_STORE_FAILED. */
static inline void store_refuse(const char *sql, int n)
{
    atomic_store(&refusals_left, n);
    atomic_store(&refused_sql, sql);
}

static inline void assert_store_refused(void)
{
    assert_int_equal(atomic_load(&refusals_left), 0);
}
