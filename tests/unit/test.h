/* test.h - what every unit test includes: cmocka with its order of headers, and a shorter way to write a test. */
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

/* How many times longer things may take here than on an ordinary machine: 1, or COVE_SLOW_HOST on an emulated one. */
static inline unsigned slow_factor(void)
{
    const char *text = getenv("COVE_SLOW_HOST");
    int n = text ? atoi(text) : 1;

    return n > 1 ? (unsigned)n : 1;
}

#define RUN(name) cmocka_unit_test(name)
