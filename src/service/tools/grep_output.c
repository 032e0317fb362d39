#include "service/tools/grep_output.h"

#define NUMBER_DIGITS_MAX 18u

bool grep_output_read(const struct buf *out, bool names_only, grep_record_fn *fn, void *arg)
{
    const char *p = out->data, *end = p + out->len;

    while (p && p < end) {
        const char *nul = memchr(p, '\0', (size_t)(end - p)), *last = nul;

        if (nul && !names_only)
            last = memchr(nul, '\n', (size_t)(end - nul));
        if (!last)
            return false;
        fn(arg, p, nul + 1, last > nul ? (size_t)(last - nul - 1) : 0);
        p = last + 1;
    }
    return true;
}

/* The number of its digits; 0: there is no number. */
static size_t grep_output_number(const char *text, size_t len, uint64_t *ret)
{
    size_t n = 0;

    *ret = 0;
    for (; n < len && n <= NUMBER_DIGITS_MAX && text[n] >= '0' && text[n] <= '9'; n++)
        *ret = *ret * 10 + (uint64_t)(text[n] - '0');
    return n <= NUMBER_DIGITS_MAX ? n : 0;
}

bool grep_output_parse_line(const char *text, size_t len, uint64_t *ret_line, bool *ret_is_match, size_t *ret_head)
{
    size_t n = grep_output_number(text, len, ret_line);

    if (n == 0 || n == len || (text[n] != ':' && text[n] != '-'))
        return false;
    *ret_is_match = text[n] == ':';
    *ret_head = n + 1;
    return true;
}

bool grep_output_parse_count(const char *text, size_t len, uint64_t *ret)
{
    return len > 0 && grep_output_number(text, len, ret) == len && *ret > 0;
}
