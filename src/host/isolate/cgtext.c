#include "host/isolate/cgtext.h"

#include "core/base/str.h"

uint64_t cgtext_number(const char *text)
{
    uint64_t v;

    if (!str_eat_u64(&text, UINT64_MAX - 1, &v) || (*text && *text != '\n' && *text != ' '))
        return CGTEXT_UNKNOWN;
    return v;
}

uint64_t cgtext_value(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return cgtext_number(line + n + 1);
        if (!*line)
            break;
    }
    return CGTEXT_UNKNOWN;
}

bool cgtext_has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; n && (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\n' || p[n] == '\0'))
            return true;
    return false;
}

bool cgtext_next_pid(const char **text, pid_t *ret)
{
    uint32_t pid;

    while (str_eat_u32(text, INT32_MAX, &pid) && str_eat(text, "\n"))
        if (pid > 1) {
            *ret = (pid_t)pid;
            return true;
        }
    return false;
}
