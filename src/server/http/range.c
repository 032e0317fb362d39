#include "server/http/range.h"

#include "core/base/str.h"

static void range_skip_blanks(const char **p)
{
    while (**p == ' ' || **p == '\t')
        ++*p;
}

/* "500-999", "500-" or "-500"; false for anything else. */
static bool range_parse_spec(const char **p, uint64_t *from, uint64_t *to, bool *has_from, bool *has_to)
{
    *has_from = str_eat_u64(p, INT64_MAX, from);
    if (!str_eat(p, "-"))
        return false;
    *has_to = str_eat_u64(p, INT64_MAX, to);
    return *has_from || *has_to;
}

enum range_kind range_parse(const char *header, uint64_t size, uint64_t *ret_from, uint64_t *ret_len)
{
    const char *p = header;
    uint64_t from = 0, to = 0;
    bool has_from, has_to;

    *ret_from = 0;
    *ret_len = size;
    if (!p || !str_eat(&p, "bytes="))
        return RANGE_WHOLE;
    range_skip_blanks(&p);
    if (!range_parse_spec(&p, &from, &to, &has_from, &has_to))
        return RANGE_WHOLE;
    range_skip_blanks(&p);
    if (*p != '\0' || (has_from && has_to && to < from))
        return RANGE_WHOLE;
    if (!has_from) { /* the last `to` bytes */
        if (to == 0 || size == 0)
            return RANGE_UNSATISFIABLE;
        from = to < size ? size - to : 0;
        to = size - 1;
    } else if (from >= size) {
        return RANGE_UNSATISFIABLE;
    } else if (!has_to || to >= size) {
        to = size - 1;
    }
    *ret_from = from;
    *ret_len = to - from + 1;
    return RANGE_PART;
}

bool range_tag_listed(const char *header, const char *etag, bool weak)
{
    const char *p = header;
    size_t n = strlen(etag);

    while (*p) {
        while (*p == ' ' || *p == '\t' || *p == ',')
            p++;
        if (*p == '*')
            return true;
        bool is_weak = str_eat(&p, "W/");
        if (*p != '"')
            return false;
        const char *end = strchr(p + 1, '"');
        if (!end)
            return false;
        if ((weak || !is_weak) && (size_t)(end + 1 - p) == n && memcmp(p, etag, n) == 0)
            return true;
        p = end + 1;
    }
    return false;
}
