/* text.h - UTF-8 validation, base64 and percent encoding, and line wrapping. */
#pragma once

#include "core/base/buf.h"

bool text_is_utf8(const char *data, size_t len); /* well-formed: no overlong forms, no surrogates, at most U+10FFFF */
void text_base64(struct buf *out, const char *data, size_t len);
/* The variant for URLs and tokens: '-' and '_' as the last two digits, no padding. */
void text_base64url(struct buf *out, const void *data, size_t len);
/* Strict: every byte string has exactly one encoding, so padding, whitespace, digits of the other
 * variant and unused non-zero bits are refused. `out` must have len / 4 * 3 + 2 bytes. */
bool text_from_base64url(const char *text, size_t len, uint8_t *out, size_t *ret_len);
void text_percent_encode(struct buf *out, const char *text); /* as a value in the query of a URL */
/* The inverse of text_base64, strict: padding is required, other characters and unused non-zero
 * bits are refused. If it returns false, nothing is added. */
bool text_from_base64(struct buf *out, const char *text, size_t len);
/* Wraps a paragraph to `width` columns. Every line is indented by `indent`; the first one starts at
 * column `at`. */
void text_wrap(struct buf *out, const char *text, size_t at, size_t indent, size_t width);

/* Converts "http.idleTimeout" to another spelling, for example "--http-idle-timeout": a word ends
 * at a dot and before a capital letter. The caller frees the result. */
char *text_respell_name(const char *prefix, const char *name, char between, bool capitals) MUST_USE;
