/* secret_scrub.h - finds the forms of a secret value in bytes that come in pieces, and replaces
 * them by '*' of the same length. Part of secret_way.h, which lists the forms. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"

/* The forms of one value. */
struct secret_forms;
struct secret_forms *secret_forms_new(const char *value);
void secret_forms_free(struct secret_forms *f); /* wipes */
/* In a text that is complete. Returns the number of occurrences. */
uint64_t secret_forms_mask(const struct secret_forms *f, char *text, size_t n);

/* The filter. It holds bytes back only if they may begin a form, and always fewer than the longest
 * form has. */
struct secret_scrub {
    const struct secret_forms *forms;
    struct buf raw, clean; /* held back: as received, and as they will be sent */
    uint64_t found;        /* occurrences that were replaced */
};
void secret_scrub_init(struct secret_scrub *s, const struct secret_forms *forms);
void secret_scrub_done(struct secret_scrub *s); /* wipes */
void secret_scrub_feed(struct secret_scrub *s, const char *data, size_t n, struct buf *out);
void secret_scrub_end(struct secret_scrub *s, struct buf *out); /* at the end of the content */
