/* calc_function.h - the functions and constants of the calculator: one table. */
#pragma once

#include "core/calc/calc_value.h"

/* The result replaces args[0]; the other arguments are changed too. */
typedef int calc_function_fn(struct calc_run *r, struct calc_value *args, size_t n);

struct calc_function {
    const char *name;
    size_t min, max; /* arguments; both 0: a constant, written without parentheses */
    calc_function_fn *call;
};

const struct calc_function *calc_function_find(const char *name, size_t len); /* NULL: none; any case */
calc_function_fn calc_factorial;
