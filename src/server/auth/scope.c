/* A set is a word of bits that includes all implied scopes: a test for a scope need not consider
 * `admin`, and "no more scopes than its creator" is one AND. */
#include "server/auth/scope.h"

#include "core/base/str.h"
#include "core/base/suggest.h"

static const struct {
    const char *name, *help;
} scopes[SCOPE_COUNT] = {
#define SCOPE(id, name, help) [SCOPE_##id] = { name, help },
#include "server/auth/scopes.def"
#undef SCOPE
};

static const struct {
    enum scope of;
    uint32_t held;
} scope_implications[] = {
    { SCOPE_ADMIN, SCOPE_ALL & ~SCOPE_BIT(ADMIN) },
    { SCOPE_EXECUTIONS, SCOPE_BIT(EXECUTIONS_READ) },
    { SCOPE_FILES, SCOPE_BIT(FILES_READ) },
};

static uint32_t scope_implied_by(uint32_t set)
{
    uint32_t held = 0;

    for (size_t i = 0; i < ARRAY_LEN(scope_implications); i++)
        if (set & (1u << (unsigned)scope_implications[i].of))
            held |= scope_implications[i].held;
    return held;
}

uint32_t scope_expand(uint32_t set)
{
    return set | scope_implied_by(set);
}

const char *scope_name(enum scope s)
{
    return scopes[s].name;
}

const char *scope_help(enum scope s)
{
    return scopes[s].help;
}

int scope_parse(const char *name, uint32_t *ret_bits, struct err *err)
{
    struct suggest near;
    char shown[40];

    suggest_init(&near, name);
    for (unsigned i = 0; i < SCOPE_COUNT; i++) {
        if (str_eq(scopes[i].name, name)) {
            *ret_bits = scope_expand(1u << i);
            return 0;
        }
        suggest_offer(&near, scopes[i].name);
    }
    if (!str_copy(shown, sizeof(shown), name))
        return err_set(err, ERR_INVALID, "scope: the name is longer than that of any scope");
    str_strip_control_chars(shown);
    if (near.best)
        return err_set(err, ERR_INVALID, "unknown scope '%s'; did you mean '%s'?", shown, near.best);
    return err_set(err, ERR_INVALID, "unknown scope '%s'", shown);
}

int scope_parse_list(const char *names, uint32_t *ret, struct err *err)
{
    uint32_t set = 0, bit;

    while (*names) {
        size_t n = strcspn(names, " ");
        auto_free char *name = str_dup_n(names, n);

        if (scope_parse(name, &bit, err) < 0)
            return -1;
        set |= bit;
        names += n;
        if (*names == ' ' && *++names == '\0')
            return err_set(err, ERR_INVALID, "the list of scopes ends with a space");
    }
    *ret = set;
    return 0;
}

void scope_write_list(uint32_t set, struct buf *out)
{
    const char *space = "";

    set &= ~scope_implied_by(set);
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (set & (1u << i)) {
            buf_addf(out, "%s%s", space, scopes[i].name);
            space = " ";
        }
}
