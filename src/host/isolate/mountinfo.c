/* A line is: id parent major:minor ROOT POINT options [optional...] - TYPE source SUPER. Spaces and
 * backslashes in names are written as octal escapes. */
#include "host/isolate/mountinfo.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <fcntl.h>

#define TEXT_MAX (4u << 20)

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Copies the field at *p up to a space or the end of the line, and decodes escapes. False if it
 * does not fit. */
static bool mountinfo_copy_field(const char **p, const char *end, char *dst, size_t cap)
{
    size_t n = 0;
    const char *s = *p;

    while (s < end && *s != ' ') {
        char c = *s++;

        if (c == '\\' && end - s >= 3 && is_octal(s[0]) && is_octal(s[1]) && is_octal(s[2])) {
            c = (char)((s[0] - '0') << 6 | (s[1] - '0') << 3 | (s[2] - '0'));
            s += 3;
        }
        if (c == '\0' || n + 1 >= cap)
            return false;
        dst[n++] = c;
    }
    dst[n] = '\0';
    while (s < end && *s == ' ')
        s++;
    *p = s;
    return n > 0;
}

static bool mountinfo_skip_field(const char **p, const char *end)
{
    const char *s = memchr(*p, ' ', (size_t)(end - *p));

    if (!s)
        return false;
    while (s < end && *s == ' ')
        s++;
    *p = s;
    return true;
}

static bool mountinfo_parse_line(const char *p, const char *end, struct mountinfo *ret)
{
    const char *number = p;

    if (!str_eat_u32(&number, UINT32_MAX, &ret->id) || *number != ' ')
        return false;
    for (int i = 0; i < 3; i++)
        if (!mountinfo_skip_field(&p, end))
            return false;
    if (!mountinfo_copy_field(&p, end, ret->root, sizeof(ret->root)) ||
        !mountinfo_copy_field(&p, end, ret->point, sizeof(ret->point)))
        return false;
    if (!mountinfo_skip_field(&p, end))
        return false;
    while (!(end - p >= 2 && p[0] == '-' && p[1] == ' '))
        if (!mountinfo_skip_field(&p, end))
            return false;
    return mountinfo_skip_field(&p, end) && mountinfo_copy_field(&p, end, ret->type, sizeof(ret->type)) &&
           mountinfo_skip_field(&p, end) && mountinfo_copy_field(&p, end, ret->super, sizeof(ret->super));
}

bool mountinfo_next(const char **text, struct mountinfo *ret)
{
    while (**text) {
        const char *line = *text, *end = strchr(line, '\n');

        if (!end)
            end = line + strlen(line);
        *text = *end ? end + 1 : end;
        if (mountinfo_parse_line(line, end, ret))
            return true;
    }
    return false;
}

bool mountinfo_has_option(const char *options, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = options; n && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : "")
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

char *mountinfo_read(void)
{
    size_t cap = 4 * 1024;
    auto_fd int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    char *text = mem_alloc(cap);
    ssize_t n = 0;
    size_t len = 0;

    while (fd >= 0 && cap < TEXT_MAX && (n = fd_read_full(fd, text + len, cap - len - 1)) > 0) {
        len += (size_t)n;
        if (len + 1 < cap)
            break;
        cap *= 2;
        text = mem_resize(text, cap, 1);
    }
    text[len] = '\0';
    return text;
}
