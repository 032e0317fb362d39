/* text.h - is it text, and if not, how to carry it in JSON; how to lay it out for people. */
#pragma once

#include "core/base/buf.h"

bool text_is_utf8(const char *data, size_t len); /* well-formed: no overlong forms, no surrogates, at most U+10FFFF */
void text_base64(struct buf *out, const char *data, size_t len);
/* The form that goes into URLs and tokens: '-' and '_' as the last two digits, no padding. */
void text_base64url(struct buf *out, const void *data, size_t len);
/* Strict: every byte string has one text only, so padding, blanks, digits of the other form and bits that would be
 * thrown away are refused. `out` has room for len / 4 * 3 + 2 bytes. */
bool text_from_base64url(const char *text, size_t len, uint8_t *out, size_t *ret_len);
void text_percent_encode(struct buf *out, const char *text); /* as a value in the query of a URL */
/* The inverse, strictly: padded, no other character, no bits that no byte has. False with nothing added. */
bool text_from_base64(struct buf *out, const char *text, size_t len);
/* Wraps a paragraph to `width` columns, every line indented by `indent`; the first one starts at column `at`. */
void text_wrap(struct buf *out, const char *text, size_t at, size_t indent, size_t width);

/* "http.idleTimeout" in the spelling of another place, for example "--http-idle-timeout": a word ends at a dot and
 * before a capital. The caller frees it. */
char *text_respell_name(const char *prefix, const char *name, char between, bool capitals) MUST_USE;
