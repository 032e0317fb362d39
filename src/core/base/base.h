/* base.h - the macros that every file needs.
 *
 * Cleanup by scope: `auto_free`, `auto_fd` and `auto_(x)` release the resource at the end of the
 * block. take_ptr() and take_fd() move ownership out of the block. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull
#define KIB 1024ull
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN __attribute__((noreturn))
#define MUST_USE __attribute__((warn_unused_result))
#define UNUSED __attribute__((unused))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline void auto_free_(void *p)
{
    free(*(void **)p);
}
#define auto_free __attribute__((cleanup(auto_free_)))

/* DEFINE_AUTO(ratelimit, ratelimit_free) lets a caller write `auto_(ratelimit) rl = NULL;`. */
#define DEFINE_AUTO(name, free_fn)                     \
    static inline void auto_##name##_(struct name **p) \
    {                                                  \
        free_fn(*p);                                   \
    }                                                  \
    struct name
#define auto_(name) __attribute__((cleanup(auto_##name##_))) struct name *

static inline void *take_ptr_(void *pp)
{
    void *p = *(void **)pp;

    *(void **)pp = NULL;
    return p;
}
#define take_ptr(pp) ((__typeof__(*(pp)))take_ptr_(pp))
