/* Flags are looked at twice: --config must be known before the file is read, and the file before the flags that go over
 * it. */
#include "conf/conf.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/suggest.h"

#include <stdio.h>

struct word {
    char *name; /* "--listen" */
    const char *value;
    int used; /* words it took */
};

static struct word word_at(int argc, char **argv, int i)
{
    const char *equals = str_starts(argv[i], "--") ? strchr(argv[i], '=') : NULL;

    if (equals)
        return (struct word){ str_dup_n(argv[i], (size_t)(equals - argv[i])), equals + 1, 1 };
    return (struct word){ str_dup(argv[i]), i + 1 < argc ? argv[i + 1] : NULL, 2 };
}

static const struct conf_option *find_own(const struct conf_option *own, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(own[i].name, name))
            return &own[i];
    return NULL;
}

static void unknown(const char *name, const struct conf_option *own, size_t nown, struct problems *pr)
{
    char *flags[SETTING_COUNT];
    struct suggest near;
    char fix[120];

    suggest_init(&near, name);
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        suggest_offer(&near, flags[s] = setting_flag((enum setting)s));
    for (size_t i = 0; i < nown; i++)
        suggest_offer(&near, own[i].name);
    if (near.best)
        snprintf(fix, sizeof(fix), "Did you mean %s?", near.best);
    problems_add(pr, ERR_USAGE, 0, 0, near.best ? fix : NULL, "'%.80s' is no flag", name);
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        free(flags[s]);
}

/* Takes the flag when it is the program's own: 0, or 1 when it is not, or -1 without the value that it needs. */
static int read_own(const struct conf_option *own, size_t nown, struct word *w, struct err *err)
{
    const struct conf_option *o = find_own(own, nown, w->name);

    if (!o)
        return 1;
    if (o->set) {
        *o->set = true;
        w->used = 1;
    } else if (!w->value) {
        return err_set(err, ERR_USAGE, "%s needs a value", w->name);
    } else {
        *o->value = w->value;
    }
    return 0;
}

void conf_own_flags(int argc, char **argv, const struct conf_option *own, size_t nown)
{
    for (int i = 1; i < argc; i++) {
        struct word w = word_at(argc, argv, i);

        (void)read_own(own, nown, &w, NULL);
        free(w.name);
    }
}

int conf_flags(struct conf *c, int argc, char **argv, const struct conf_option *own, size_t nown, struct problems *pr)
{
    for (int i = 1; i < argc;) {
        struct word w = word_at(argc, argv, i);
        struct err err = { 0 };
        int rc = read_own(own, nown, &w, &err);

        if (rc == 1)
            rc = conf_read_flag(c, w.name, w.value, &err);
        if (rc < 0)
            problems_add(pr, err.id, 0, 0, NULL, "%s", err.msg);
        if (rc == 1)
            unknown(w.name, own, nown, pr);
        if (rc == 1 && (w.name[0] != '-' || i + 1 >= argc || argv[i + 1][0] == '-'))
            w.used = 1; /* else the word behind it was meant for it, and is no mistake of its own */
        i += w.used;
        free(w.name);
    }
    return pr->n ? -1 : 0;
}

int conf_command(struct conf *c, const char *program, int argc, char **argv, char *const *env,
                 const struct conf_option *own, size_t nown, struct problems *pr)
{
    const char *file = NULL;
    struct conf_option mine[16] = { { "--config", &file, NULL } };
    struct err err = { 0 };

    nown = nown < ARRAY_LEN(mine) ? nown : ARRAY_LEN(mine) - 1;
    for (size_t i = 0; i < nown; i++)
        mine[i + 1] = own[i];
    conf_own_flags(argc, argv, mine, nown + 1);
    if (conf_read_file(c, file, pr) < 0)
        return -1;
    pr->file = program;
    if (conf_read_environment(c, env, &err) < 0)
        problems_add(pr, err.id, 0, 0, NULL, "%s", err.msg);
    return conf_flags(c, argc, argv, mine, nown + 1, pr);
}
