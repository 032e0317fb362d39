/* test.h - what every unit test includes: cmocka with its order of headers, and a shorter way to write a test. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

#define TEST(name) static void name(void **state UNUSED)
#define RUN(name) cmocka_unit_test(name)
