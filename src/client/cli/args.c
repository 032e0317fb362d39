#include "client/cli/args.h"

#include "core/base/suggest.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <limits.h>

/* Flags of similar tools, and their names here. */
static const struct {
    const char *theirs, *ours;
} args_foreign_flags[] = {
    { "volume", "bind-ro SRC:DST' or '--workspace DIR" },
    { "mount", "bind-ro SRC:DST' or '--workspace DIR" },
    { "ro-bind", "bind-ro SRC:DST" },
    { "bind", "bind-ro SRC:DST" },
    { "network", "net" },
    { "setenv", "env" },
    { "workdir", "cwd" },
    { "chdir", "cwd" },
    { "ulimit", "pids" },
    { "pids-limit", "pids" },
    { "mem", "memory" },
    { "stdin", "interactive" },
    { "time", "timeout" },
    { "lang", "runtime" },
    { "language", "runtime" },
    { "verbose", "receipt" },
    { "storage", "disk" },
    { "detach", "background" },
};

/* Letters of similar tools, and the flags here; the first that the verb has is suggested. */
static const struct {
    char letter;
    const char *ours;
} args_foreign_letters[] = {
    { 'v', "bind-ro SRC:DST' or '--workspace DIR" },
    { 'm', "memory" },
    { 'd', "background" },
};

static int args_unknown_letter(const struct cli_verb *v, char letter, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(args_foreign_letters); i++)
        if (args_foreign_letters[i].letter == letter &&
            cli_option_find(v, args_foreign_letters[i].ours, strcspn(args_foreign_letters[i].ours, " ")))
            return err_set(err, ERR_USAGE, "'cove %s' has no flag '-%c'; did you mean '--%s'?", v->name, letter,
                           args_foreign_letters[i].ours);
    return err_set(err, ERR_USAGE, "'cove %s' has no flag '-%c'", v->name, letter);
}

static int args_unknown_flag(const struct cli_verb *v, const char *name, struct err *err)
{
    struct suggest s;

    for (size_t i = 0; i < ARRAY_LEN(args_foreign_flags); i++)
        if (str_eq(args_foreign_flags[i].theirs, name) &&
            cli_option_find(v, args_foreign_flags[i].ours, strcspn(args_foreign_flags[i].ours, " ")))
            return err_set(err, ERR_USAGE, "'cove %s' has no flag '--%s'; did you mean '--%s'?", v->name, name,
                           args_foreign_flags[i].ours);
    suggest_init(&s, name);
    for (const struct cli_option *o = NULL; (o = cli_option_next(v, o));)
        suggest_offer(&s, o->name);
    if (s.best)
        return err_set(err, ERR_USAGE, "'cove %s' has no flag '--%s'; did you mean '--%s'?", v->name, name, s.best);
    return err_set(err, ERR_USAGE, "'cove %s' has no flag '--%s'", v->name, name);
}

static void args_add(struct args *a, const struct cli_option *o, const char *value)
{
    a->items[a->n++] = (struct arg){ o, value };
}

static int args_parse_long(const struct cli_verb *v, struct args *a, char **argv, int argc, int *i, struct err *err)
{
    const char *word = argv[*i] + 2;
    const char *eq = strchr(word, '=');
    size_t len = eq ? (size_t)(eq - word) : strlen(word);
    const struct cli_option *o = cli_option_find(v, word, len);

    if (!o) {
        auto_free char *name = str_dup_n(word, min_size(len, 60));
        return args_unknown_flag(v, name, err);
    }
    if (eq && !o->arg)
        return err_set(err, ERR_USAGE, "flag '--%s' takes no value", o->name);
    if (!o->arg || (cli_arg_optional(o) && !eq)) {
        args_add(a, o, NULL);
        return 0;
    }
    if (eq) {
        args_add(a, o, eq + 1);
        return 0;
    }
    if (*i + 1 >= argc)
        return err_set(err, ERR_USAGE, "flag '--%s' needs a value: --%s %s", o->name, o->name, o->arg);
    args_add(a, o, argv[++*i]);
    return 0;
}

/* A cluster of letters: "-it", "-c CODE", "-cCODE". */
static int args_parse_letters(const struct cli_verb *v, struct args *a, char **argv, int argc, int *i, struct err *err)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct cli_option *o = cli_option_letter(v, *p);

        if (!o && (unsigned char)*p > ' ' && (unsigned char)*p < 0x7f)
            return args_unknown_letter(v, *p, err);
        if (!o)
            return err_set(err, ERR_USAGE, "'cove %s': unknown flag; flags are ASCII letters", v->name);
        if (!o->arg) {
            args_add(a, o, NULL);
            continue;
        }
        if (p[1]) {
            args_add(a, o, p + 1);
            return 0;
        }
        if (*i + 1 >= argc)
            return err_set(err, ERR_USAGE, "flag '-%c' needs a value: -%c %s", *p, *p, o->arg);
        args_add(a, o, argv[++*i]);
        return 0;
    }
    return 0;
}

/* Number of arguments that flags may surround; the next argument begins a program. */
static int args_words_before_program(const struct cli_verb *v)
{
    switch (v->id) {
    case VERB_RUN:
    case VERB_EXECUTE:
        return 0;
    case VERB_ENTER:
    case VERB_EXEC:
        return 1;
    default:
        return INT_MAX;
    }
}

static bool args_is_flag(const char *word)
{
    return word[0] == '-' && word[1];
}

int args_parse(const struct cli_verb *v, int argc, char **argv, struct args *ret, struct err *err)
{
    struct args a = { 0 };
    size_t words = 0;
    int i = 1, rc = 0, open = args_words_before_program(v);

    for (int k = 1; k < argc; k++) /* a cluster holds at most one flag per letter */
        words += argv[k][0] == '-' && argv[k][1] != '-' ? strlen(argv[k]) : 1;
    a.items = mem_new_array(struct arg, words + 1);
    a.rest = mem_new_array(char *, (size_t)argc + 1);
    for (; i < argc && !a.after_dashes && (args_is_flag(argv[i]) || a.nrest < open); i++) {
        if (!args_is_flag(argv[i]))
            a.rest[a.nrest++] = argv[i];
        else if (str_eq(argv[i], "--"))
            a.after_dashes = true;
        else
            rc = argv[i][1] == '-' ? args_parse_long(v, &a, argv, argc, &i, err)
                                   : args_parse_letters(v, &a, argv, argc, &i, err);
        if (rc < 0) {
            args_done(&a);
            return -1;
        }
    }
    while (i < argc)
        a.rest[a.nrest++] = argv[i++];
    a.rest[a.nrest] = NULL;
    *ret = a;
    return 0;
}

void args_done(struct args *a)
{
    free(a->items);
    free(a->rest);
    *a = (struct args){ 0 };
}

const struct arg *args_find(const struct args *a, int id)
{
    for (size_t i = a->n; i > 0; i--)
        if (a->items[i - 1].opt->id == id)
            return &a->items[i - 1];
    return NULL;
}

bool args_has_flag(int argc, char **argv, const char *flag)
{
    for (int i = 1; i < argc && !str_eq(argv[i], "--"); i++)
        if (str_eq(argv[i], flag))
            return true;
    return false;
}
