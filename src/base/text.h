/* text.h - is it text, and if not, how to carry it in JSON. */
#pragma once

#include "base/buf.h"

bool text_utf8(const char *data, size_t len); /* well-formed: no overlong forms, no surrogates, at most U+10FFFF */
void text_base64(struct buf *out, const char *data, size_t len);
