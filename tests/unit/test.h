/* test.h - included by every unit test: cmocka after the headers that it requires, and macros that
 * define tests. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/base.h"

#define TEST(name) static void name(void **state UNUSED)

/* COVE_TEST_ONLY=NAME runs one test of a program; tests/check repeats a failed test with it. */
__attribute__((constructor)) static void filter_tests(void)
{
    const char *only = getenv("COVE_TEST_ONLY");

    if (only)
        cmocka_set_test_filter(only);
}

/* Factor by which time limits of tests are multiplied: 1, or the value of COVE_SLOW_HOST on an
 * emulated machine. */
static inline unsigned slow_factor(void)
{
    const char *text = getenv("COVE_SLOW_HOST");
    int n = text ? atoi(text) : 1;

    return n > 1 ? (unsigned)n : 1;
}

#define RUN(name) cmocka_unit_test(name)
