/* str.h - strings: building, copying with a bound, and parsing from the front.
 *
 * The str_eat functions parse: each call either consumes what it names and returns true, or leaves
 * *p unchanged and returns false. So a parser is one condition that reads like the grammar. */
#pragma once

#include "core/base/base.h"

char *str_printf(const char *fmt, ...) PRINTF_LIKE(1, 2) MUST_USE; /* the caller frees */
char *str_dup(const char *s) MUST_USE;
char *str_dup_n(const char *s, size_t n) MUST_USE;

/* Copies into a fixed buffer. If src does not fit, returns false and makes dst empty; it never
 * truncates. */
bool str_copy(char *dst, size_t cap, const char *src);

static inline bool str_eq(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

bool str_eat(const char **p, const char *literal);
bool str_eat_u32(const char **p, uint32_t max, uint32_t *ret);
bool str_eat_u64(const char **p, uint64_t max, uint64_t *ret);

/* These parse a whole string. Bytes: "256M", "1GiB", "4096" (K M G T, powers of 1024). Time: "30s",
 * "1500ms", "5m", "1h" (a number without a unit is refused, because it could mean seconds or
 * milliseconds). Cpus: "0.5", "2", returned in thousandths. */
bool str_to_u64(const char *s, uint64_t max, uint64_t *ret);
bool str_to_bytes(const char *s, uint64_t *ret);
bool str_to_ms(const char *s, uint64_t *ret);
bool str_to_millis(const char *s, uint64_t *ret);

/* The inverse, for people: "256M", "1.5G", "30s", "2m30s". buf must have 32 bytes and is returned.
 */
char *str_bytes(uint64_t bytes, char buf[32]);
char *str_size(uint64_t bytes, char buf[32]); /* for use in a sentence: "1 byte", "17 bytes", "1.5M" */
char *str_ms(uint64_t ms, char buf[32]);

/* Returns the length of the UTF-8 character at s, reading at most n > 0 bytes, or 0 if it is not
 * valid UTF-8 (overlong forms, surrogates and values above U+10FFFF are invalid). */
size_t str_utf8(const char *s, size_t n, uint32_t *ret);
/* Makes untrusted text safe to print on a terminal, in place: invalid UTF-8, and characters that
 * move the cursor, end a line or change the writing direction, become question marks. */
void str_strip_control_chars(char *s);
