/* The command line is read twice: --config must be known before the file is read, and the file must
 * be read before the other flags, which override it. */
#include "main/conf/conf.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"

#include <stdio.h>

struct conf_argument {
    char *name; /* "--listen" */
    const char *value;
    int words; /* arguments that the flag uses: 1 or 2 */
};

static struct conf_argument conf_argument_at(int argc, char **argv, int i)
{
    const char *equals = str_starts(argv[i], "--") ? strchr(argv[i], '=') : NULL;

    if (equals)
        return (struct conf_argument){ str_dup_n(argv[i], (size_t)(equals - argv[i])), equals + 1, 1 };
    return (struct conf_argument){ str_dup(argv[i]), i + 1 < argc ? argv[i + 1] : NULL, 2 };
}

static const struct conf_option *conf_find_own_flag(const struct conf_option *own, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(own[i].name, name))
            return &own[i];
    return NULL;
}

static void conf_unknown_flag(const char *name, const struct conf_option *own, size_t nown, struct problems *pr)
{
    char *flags[SETTING_COUNT];
    struct suggest near;

    suggest_init(&near, name);
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        suggest_offer(&near, flags[s] = setting_flag((enum conf_setting)s));
    for (size_t i = 0; i < nown; i++)
        suggest_offer(&near, own[i].name);
    if (near.best)
        problems_add(pr, ERR_USAGE, 0, 0, NULL, "'%.80s' is not a flag; did you mean %s?", name, near.best);
    else
        problems_add(pr, ERR_USAGE, 0, 0, NULL, "'%.80s' is not a flag; 'cove serve --help' lists the flags", name);
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        free(flags[s]);
}

/* Reads a flag of the program itself. Returns 0 if it is such a flag, 1 if it is not, -1 if its
 * value is missing. */
static int conf_read_own_flag(const struct conf_option *own, size_t nown, struct conf_argument *w, struct err *err)
{
    const struct conf_option *o = conf_find_own_flag(own, nown, w->name);

    if (!o)
        return 1;
    if (o->set) {
        *o->set = true;
        w->words = 1;
    } else if (!w->value) {
        return err_set(err, ERR_USAGE, "%s needs a value", w->name);
    } else {
        *o->value = w->value;
    }
    return 0;
}

void conf_read_own_flags(int argc, char **argv, const struct conf_option *own, size_t nown)
{
    for (int i = 1; i < argc; i++) {
        struct conf_argument w = conf_argument_at(argc, argv, i);

        (void)conf_read_own_flag(own, nown, &w, NULL);
        free(w.name);
    }
}

int conf_read_flags(struct conf *c, int argc, char **argv, const struct conf_option *own, size_t nown,
                    struct problems *pr)
{
    for (int i = 1; i < argc;) {
        struct conf_argument w = conf_argument_at(argc, argv, i);
        struct err err = { 0 };
        int rc = conf_read_own_flag(own, nown, &w, &err);

        if (rc == 1)
            rc = conf_read_flag(c, w.name, w.value, &err);
        if (rc < 0)
            problems_add(pr, err.id, 0, 0, NULL, "%s", err.msg);
        if (rc == 1)
            conf_unknown_flag(w.name, own, nown, pr);
        if (rc == 1 && (w.name[0] != '-' || i + 1 >= argc || argv[i + 1][0] == '-'))
            w.words = 1; /* otherwise the next argument is the value of the unknown flag, and not a second error */
        i += w.words;
        free(w.name);
    }
    return pr->n ? -1 : 0;
}

int conf_read_command_line(struct conf *c, int argc, char **argv, char *const *env, const struct conf_option *own,
                           size_t nown, struct problems *pr)
{
    const char *file = NULL;
    struct conf_option mine[16] = { { "--config", &file, NULL } };
    struct err err = { 0 };

    nown = nown < ARRAY_LEN(mine) ? nown : ARRAY_LEN(mine) - 1;
    for (size_t i = 0; i < nown; i++)
        mine[i + 1] = own[i];
    conf_read_own_flags(argc, argv, mine, nown + 1);
    if (conf_read_file(c, file, pr) < 0)
        return -1;
    pr->file = NULL;
    if (conf_read_environment(c, env, &err) < 0)
        problems_add(pr, err.id, 0, 0, NULL, "%s", err.msg);
    return conf_read_flags(c, argc, argv, mine, nown + 1, pr);
}
