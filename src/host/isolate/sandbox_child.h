/* sandbox_child.h - the child of native_spawn, from clone to the exec of the runtime. */
#pragma once

#include "host/isolate/native.h"

struct sandbox_child {
    const struct native_template *template;
    const struct native_spec *spec;
    int id_maps_ready; /* eventfd: readable when the id maps are written */
};

NORETURN void sandbox_child_main(const struct sandbox_child *s);
