/* An alternative is a list of parts, and a position is the set of parts that the next name may
 * match: the states of a small automaton, so that "**" needs no backtracking and the cost of a name
 * is bounded by the number of parts. */
#include "service/tools/glob_pattern.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <fnmatch.h>

struct glob_alternative {
    char *text; /* the parts, each ended by a NUL */
    const char *parts[GLOB_PATTERN_PARTS_MAX];
    size_t lengths[GLOB_PATTERN_PARTS_MAX];
    unsigned n;
};

struct glob_pattern {
    struct glob_alternative alternatives[GLOB_ALTERNATIVES_MAX];
    unsigned n;
};

void glob_pattern_free(struct glob_pattern *g)
{
    for (unsigned i = 0; g && i < g->n; i++)
        free(g->alternatives[i].text);
    free(g);
}

static int glob_add_part(struct glob_alternative *a, char *part, struct err *err)
{
    if (str_eq(part, "."))
        return 0;
    if (str_eq(part, ".."))
        return err_set(err, ERR_INVALID, "pattern: must not contain '..'; give another path");
    if (str_eq(part, "**") && a->n > 0 && str_eq(a->parts[a->n - 1], "**"))
        return 0;
    if (a->n == GLOB_PATTERN_PARTS_MAX)
        return err_set(err, ERR_INVALID, "pattern: has more than %u parts", GLOB_PATTERN_PARTS_MAX);
    a->lengths[a->n] = strlen(part);
    a->parts[a->n++] = part;
    return 0;
}

/* Takes the text. */
static int glob_add_alternative(struct glob_pattern *g, char *text, struct err *err)
{
    struct glob_alternative *a = &g->alternatives[g->n];
    bool has_slash = strchr(text, '/') != NULL, is_dot = str_eq(text, ".");
    static char everywhere[] = "**";
    char *rest = text, *part;

    g->n++;
    a->text = text;
    if (!has_slash && glob_add_part(a, everywhere, err) < 0)
        return -1;
    while ((part = strsep(&rest, "/")))
        if (*part && glob_add_part(a, part, err) < 0)
            return -1;
    if (a->n == 0 || is_dot)
        return err_set(err, ERR_INVALID, "pattern: is empty; use * for every name");
    return 0;
}

/* Length up to the brace that closes text[0]; 0: none. */
static size_t glob_choice_length(const char *text)
{
    unsigned depth = 0;

    for (const char *p = text; *p; p++) {
        depth += *p == '{';
        if (*p == '}' && --depth == 0)
            return (size_t)(p - text) + 1;
    }
    return 0;
}

static int glob_expand(struct glob_pattern *g, const char *text, struct err *err)
{
    const char *open = strchr(text, '{'), *p, *end;
    size_t len = open ? glob_choice_length(open) : 0;
    unsigned depth = 0;

    if (g->n == GLOB_ALTERNATIVES_MAX)
        return err_set(err, ERR_INVALID, "pattern: stands for more than %u patterns", GLOB_ALTERNATIVES_MAX);
    if (len == 0)
        return glob_add_alternative(g, str_dup(text), err);
    end = open + len - 1;
    p = open + 1;
    for (const char *q = p; q <= end; q++) {
        depth += *q == '{';
        depth -= *q == '}' && q < end;
        if (q < end && (*q != ',' || depth > 0))
            continue;
        auto_free char *one = str_printf("%.*s%.*s%s", (int)(open - text), text, (int)(q - p), p, end + 1);
        if (glob_expand(g, one, err) < 0)
            return -1;
        p = q + 1;
    }
    return 0;
}

int glob_pattern_new(const char *text, struct glob_pattern **ret, struct err *err)
{
    if (!*text || strlen(text) > GLOB_PATTERN_MAX)
        return err_set(err, ERR_INVALID, "pattern: must have 1 to %u bytes", GLOB_PATTERN_MAX);
    if (text[0] == '/')
        return err_set(err, ERR_INVALID, "pattern: must be relative; give the directory as path");
    auto_(glob_pattern) g = mem_new(struct glob_pattern);
    if (glob_expand(g, text, err) < 0)
        return -1;
    *ret = take_ptr(&g);
    return 0;
}

/* Adds the parts after each "**" that is reached, because it may stand for no directory. */
static uint32_t glob_close(const struct glob_alternative *a, uint32_t bits)
{
    for (unsigned i = 0; i < a->n; i++)
        if ((bits & (1u << i)) && str_eq(a->parts[i], "**"))
            bits |= 1u << (i + 1);
    return bits;
}

void glob_pattern_begin(const struct glob_pattern *g, struct glob_position *ret)
{
    *ret = (struct glob_position){ 0 };
    for (unsigned i = 0; i < g->n; i++)
        ret->bits[i] = glob_close(&g->alternatives[i], 1);
}

static uint32_t glob_step_alternative(const struct glob_alternative *a, uint32_t from, const char *name)
{
    uint32_t to = 0;

    for (unsigned i = 0; i < a->n; i++) {
        if (!(from & (1u << i)))
            continue;
        if (str_eq(a->parts[i], "**"))
            to |= 1u << i;
        else if (fnmatch(a->parts[i], name, FNM_NOESCAPE) == 0)
            to |= 1u << (i + 1);
    }
    return glob_close(a, to);
}

bool glob_pattern_step(const struct glob_pattern *g, const struct glob_position *from, const char *name,
                       struct glob_position *ret)
{
    bool matches = false;

    *ret = (struct glob_position){ 0 };
    for (unsigned i = 0; i < g->n; i++) {
        ret->bits[i] = glob_step_alternative(&g->alternatives[i], from->bits[i], name);
        matches = matches || (ret->bits[i] & (1u << g->alternatives[i].n));
    }
    return matches;
}

uint64_t glob_pattern_work(const struct glob_pattern *g, const struct glob_position *from)
{
    uint64_t work = 0;

    for (unsigned i = 0; i < g->n; i++)
        for (unsigned k = 0; k < g->alternatives[i].n; k++)
            if (from->bits[i] & (1u << k))
                work += 8 + g->alternatives[i].lengths[k];
    return work;
}

bool glob_pattern_continues(const struct glob_pattern *g, const struct glob_position *at)
{
    for (unsigned i = 0; i < g->n; i++)
        if (at->bits[i] & ((1u << g->alternatives[i].n) - 1))
            return true;
    return false;
}

bool glob_pattern_matches(const struct glob_pattern *g, const char *path)
{
    auto_free char *copy = str_dup(path);
    struct glob_position at, next;
    char *rest = copy, *name;
    bool matches = false;

    glob_pattern_begin(g, &at);
    while ((name = strsep(&rest, "/"))) {
        if (!*name)
            continue;
        matches = glob_pattern_step(g, &at, name, &next);
        at = next;
    }
    return matches;
}
