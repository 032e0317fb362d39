/* grammar.h - the characters of HTTP/1 and of percent-encoding. */
#pragma once

#include "core/base/base.h"

static inline bool http1_is_alnum(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Of methods and of names of fields. */
static inline bool http1_is_token_char(unsigned char c)
{
    return http1_is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Of values of fields: text of any encoding, and tabs. */
static inline bool http1_is_value_char(unsigned char c)
{
    return (c >= 0x20 || c == '\t') && c != 0x7f;
}

/* The value of a hexadecimal digit; -1: not a digit. */
static inline int http1_hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
