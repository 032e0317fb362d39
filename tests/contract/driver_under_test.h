/* driver_under_test.h - the driver that a contract program runs with: native, or the one that
 * COVE_TEST_DRIVER names. */
#pragma once

#include "tests/unit/test.h"

#include "policy/driver.h"

static inline enum driver_id driver_under_test(void)
{
    const char *name = getenv("COVE_TEST_DRIVER");
    enum driver_id d = DRIVER_NATIVE;

    if (name && !driver_parse(name, &d))
        fail_msg("COVE_TEST_DRIVER: unknown driver '%s'", name);
    return d;
}
