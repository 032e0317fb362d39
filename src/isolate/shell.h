/* shell.h - the child of native_spawn: from clone to the runtime's exec. */
#pragma once

#include "isolate/native.h"

struct shell {
    const struct native_template *t;
    const struct native_spec *spec;
    int go; /* eventfd: readable when the id maps are written */
};

NORETURN void shell_main(const struct shell *s);
