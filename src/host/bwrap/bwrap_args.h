/* bwrap_args.h - the command line of Bubblewrap for one sandbox. Pure. */
#pragma once

#include "host/isolate/native.h"

#define BWRAP_ARGS_MAX 48u

struct bwrap_args {
    const char *argv[BWRAP_ARGS_MAX + 1]; /* ends with NULL; points into spec and below */
    size_t n;
    char uid[16];
};

void bwrap_args_build(struct bwrap_args *a, const struct native_spec *spec);
