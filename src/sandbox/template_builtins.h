/* template_builtins.h - the templates that come with the program, as a table. */
#pragma once

#include "core/base/base.h"

struct template_builtin {
    const char *name;
    const char *runtime;
    const char *preload; /* names with commas between them, or NULL */
    const char *limits;  /* further members of its spec, as JSON; NULL: none */
};
extern const char template_python_preload[]; /* also of python sandboxes that are made without a template */

const struct template_builtin *template_builtin_list(size_t *count);
const struct template_builtin *template_builtin_find(const char *name); /* NULL: there is none */
