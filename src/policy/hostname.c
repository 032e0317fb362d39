#include "policy/hostname.h"

#include "core/base/str.h"

#define HOSTNAME_LABEL_MAX 63

static bool hostname_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static char hostname_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Resolvers and URL parsers take a name with such a last label for an address: "127.1", "0x7f.1",
 * "2130706433". */
static bool hostname_label_is_number(const char *label, size_t len)
{
    if (len >= 2 && label[0] == '0' && label[1] == 'x')
        return true;
    for (size_t i = 0; i < len; i++)
        if (label[i] < '0' || label[i] > '9')
            return false;
    return true;
}

/* `name` is in lower case, without the trailing dot. */
static int hostname_check_labels(const char *name, struct err *err)
{
    for (const char *label = name;;) {
        size_t n = strcspn(label, ".");

        if (n == 0)
            return err_set(err, ERR_INVALID, "host name '%.80s': a label is empty; remove the extra dot", name);
        if (n > HOSTNAME_LABEL_MAX)
            return err_set(err, ERR_INVALID, "host name '%.80s': a label has more than %d characters", name,
                           HOSTNAME_LABEL_MAX);
        if (!label[n]) {
            if (hostname_label_is_number(label, n))
                return err_set(err, ERR_INVALID,
                               "host name '%.80s': some programs read it as an address; write an address as four "
                               "decimal numbers, like 192.0.2.1",
                               name);
            return 0;
        }
        label += n + 1;
    }
}

int hostname_normalize(const char *text, size_t len, char ret[HOSTNAME_MAX + 1], struct err *err)
{
    char name[HOSTNAME_MAX + 1];

    if (len > 0 && text[len - 1] == '.')
        len--;
    if (len == 0)
        return err_set(err, ERR_INVALID, "host name: it is empty");
    if (len > HOSTNAME_MAX)
        return err_set(err, ERR_INVALID, "host name: it has more than %d characters", HOSTNAME_MAX);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        name[i] = hostname_lower(text[i]);
        if (hostname_char(name[i]) || c == '.')
            continue;
        if (c >= 0x80)
            return err_set(err, ERR_INVALID,
                           "host name: character %zu is not ASCII; write the name in its ASCII form, which begins "
                           "with xn--",
                           i + 1);
        if (c <= 0x20 || c == 0x7f)
            return err_set(err, ERR_INVALID, "host name: character %zu is a space or a control character", i + 1);
        return err_set(err, ERR_INVALID,
                       "host name: character %zu is '%c'; names have letters, digits, '-', '_' and dots", i + 1, c);
    }
    name[len] = '\0';
    if (hostname_check_labels(name, err) < 0)
        return -1;
    memcpy(ret, name, len + 1);
    return 0;
}

int hostname_pattern_normalize(const char *text, size_t len, char ret[HOSTNAME_MAX + 1], struct err *err)
{
    char name[HOSTNAME_MAX + 1];

    if (len == 1 && text[0] == '*') {
        str_copy(ret, HOSTNAME_MAX + 1, "*");
        return 0;
    }
    bool wild = len > 2 && text[0] == '*' && text[1] == '.';
    if (!wild && memchr(text, '*', len))
        return err_set(err, ERR_INVALID,
                       "host name pattern: '*' stands for whole labels and only at the front, like *.example.org");
    if (!wild)
        return hostname_normalize(text, len, ret, err);
    if (memchr(text + 1, '*', len - 1))
        return err_set(err, ERR_INVALID, "host name pattern: '*' is permitted once, at the front");
    if (hostname_normalize(text + 2, len - 2, name, err) < 0)
        return -1;
    if (strlen(name) + 2 > HOSTNAME_MAX)
        return err_set(err, ERR_INVALID, "host name pattern: it has more than %d characters", HOSTNAME_MAX);
    ret[0] = '*';
    ret[1] = '.';
    str_copy(ret + 2, HOSTNAME_MAX - 1, name);
    return 0;
}

bool hostname_matches(const char *pattern, const char *host)
{
    if (str_eq(pattern, "*"))
        return host[0] != '\0';
    if (pattern[0] != '*')
        return str_eq(pattern, host);
    /* pattern + 1 begins with the dot, so the text before it is one or more whole labels. */
    return strlen(host) > strlen(pattern + 1) && str_ends(host, pattern + 1);
}
