/* owned_spec.h - a spec that owns its strings: what a prepared sandbox is made from. */
#pragma once

#include "sandbox/driver/spec.h"

struct owned_spec {
    struct sandbox_spec spec; /* points to the fields below */
    struct zygote_spec zygote;
    char *language, *preload, *hostname;
};

/* Copies all that the claim does not set. s must be zeroed or set; like may be its own spec. */
void owned_spec_set(struct owned_spec *s, const struct sandbox_spec *like);
void owned_spec_done(struct owned_spec *s);
