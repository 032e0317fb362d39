#include "client/cli/args.h"

#include "core/base/suggest.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <limits.h>

/* Names of similar tools for flags that have the same argument and meaning here: both are
 * accepted. */
static const struct {
    const char *theirs, *ours;
} args_aliases[] = {
    { "language", "runtime" }, { "lang", "runtime" },    { "interactive", "stdin" }, { "detach", "background" },
    { "workdir", "cwd" },      { "chdir", "cwd" },       { "setenv", "env" },        { "mem", "memory" },
    { "cpu", "cpus" },         { "pids-limit", "pids" }, { "ulimit", "pids" },       { "network", "net" },
    { "storage", "disk" },     { "time", "timeout" },    { "label", "metadata" },    { "mount", "volume" },
    { "verbose", "receipt" },
};

static const struct {
    char theirs;
    const char *ours;
} args_letter_aliases[] = { { 'm', "memory" }, { 'd', "background" } };

/* Flags of similar tools that have no equivalent in a verb, and what to do instead. */
static const struct {
    enum verb_id verb;
    const char *theirs;
    const char *answer;
} args_answers[] = {
    { VERB_RUN, "background", "it ends with its program; 'cove sandbox create' and 'cove exec -d' leave one running" },
    { VERB_RUN, "template", "templates belong to a server; use --runtime, or 'cove execute --template'" },
    { VERB_RUN, "name", "its sandbox is used once; 'cove sandbox create --name NAME' creates one with a name" },
    { VERB_RUN, "publish", "a sandbox accepts no connections from outside" },
    { VERB_RUN, "allow-net", "write --allow HOST for each host; the rest stays closed" },
    { VERB_RUN, "allow-domain", "write --allow HOST" },
    { VERB_RUN, "egress", "write --allow HOST for each host" },
    { VERB_RUN, "add-host", "write --allow HOST for each host; names are resolved outside of the sandbox" },
    { VERB_RUN, "dns", "names are resolved outside of the sandbox, when a connection is allowed" },
    { VERB_RUN, "proxy", "the sandbox has a proxy of its own; write --allow HOST for each host" },
    { VERB_RUN, "privileged", "a sandbox never has privileges; --policy debug permits programs to trace each other" },
    { VERB_RUN, "cap-add", "a sandbox never has privileges; --policy debug permits programs to trace each other" },
    { VERB_RUN, "user", "programs always run as an unprivileged user of the sandbox" },
    { VERB_RUN, "entrypoint", "write the program after --" },
    { VERB_RUN, "bind", "write --bind-ro SRC:DST, or --workspace DIR for a writable directory" },
    { VERB_RUN, "ro-bind", "write --bind-ro SRC:DST" },
    { VERB_RUN, "env-file", "write -e NAME=VALUE for each variable, or -e NAME to pass your own value" },
    { VERB_RUN, "hostname", "the host name inside is always cove" },
    { VERB_RUN, "gpus", "a sandbox has no devices" },
    { VERB_RUN, "device", "a sandbox has no devices" },
    { VERB_RUN, "restart", "it ends with its program, and is removed; nothing restarts it" },
    { VERB_RUN, "read-only", "the system is always read-only; with --workspace DIR:cow your files are unchanged too" },
    { VERB_RUN, "tmpfs", "/tmp is always in memory; --tmp SIZE sets its size" },
    { VERB_RUN, "shm-size", "/dev/shm has a fixed size, set by shmBytes of a policy file" },
    { VERB_RUN, "security-opt", "all walls are always up; --policy FILE changes what a sandbox may do" },
    { VERB_RUN, "image", "there are no images: a sandbox uses the programs of the host" },
    { VERB_EXECUTE, "background",
      "it ends with its program; 'cove sandbox create' and 'cove exec -d' leave one running" },
    { VERB_EXECUTE, "volume", "write --file FILE to copy a file into the sandbox" },
    { VERB_EXECUTE, "cpu-time", "write --timeout TIME, or use 'cove exec --cpu-time'" },
    { VERB_EXECUTE, "name", "its sandbox is used once; 'cove sandbox create --name NAME' creates one with a name" },
    { VERB_EXECUTE, "tty", "'cove shell SANDBOX' has a terminal" },
    { VERB_EXEC, "memory", "limits belong to the sandbox; write 'cove sandbox create --memory SIZE'" },
    { VERB_EXEC, "cpus", "limits belong to the sandbox; write 'cove sandbox create --cpus N'" },
    { VERB_EXEC, "pids", "limits belong to the sandbox; write 'cove sandbox create --pids N'" },
    { VERB_EXEC, "disk", "limits belong to the sandbox; write 'cove sandbox create --disk SIZE'" },
    { VERB_EXEC, "allow", "the network belongs to the sandbox; write 'cove sandbox update --allow HOST'" },
    { VERB_EXEC, "net", "the network belongs to the sandbox; write 'cove sandbox create --allow HOST'" },
    { VERB_EXEC, "template", "the sandbox has its template; write 'cove sandbox create --template NAME'" },
    { VERB_RM, "force", "it never asks about a sandbox that is named; omit the flag" },
    { VERB_SANDBOX, "force", "it never asks about a sandbox that is named; omit the flag" },
    { VERB_TOKEN, "port", "a sandbox has no ports to reach" },
    { VERB_SANDBOX, "volume", "a server does not mount your files; 'cove cp FILE SANDBOX:' copies them" },
    { VERB_SANDBOX, "publish", "a sandbox accepts no connections from outside, so there are no ports to publish" },
};

static const struct {
    char letter;
    const char *name;
} args_answer_letters[] = { { 'p', "publish" }, { 'v', "volume" }, { 'd', "background" }, { 'u', "user" },
                            { 'm', "memory" },  { 't', "tty" },    { 'f', "force" } };

/* Accepted without effect, because it says what always happens. */
static bool args_is_default(const struct cli_verb *v, const char *name)
{
    return str_eq(name, "rm") && (v->id == VERB_RUN || v->id == VERB_EXECUTE);
}

static const char *args_alias_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(args_aliases); i++)
        if (str_eq(args_aliases[i].theirs, name))
            return args_aliases[i].ours;
    return name;
}

static const struct cli_option *args_find_option(const struct cli_verb *v, const char *name, size_t len)
{
    const struct cli_option *o = cli_option_find(v, name, len);
    auto_free char *word = str_dup_n(name, len);
    const char *ours = args_alias_of(word);

    return o ? o : cli_option_find(v, ours, strlen(ours));
}

static const struct cli_option *args_find_letter(const struct cli_verb *v, char letter)
{
    const struct cli_option *o = cli_option_letter(v, letter);

    for (size_t i = 0; !o && i < ARRAY_LEN(args_letter_aliases); i++)
        if (args_letter_aliases[i].theirs == letter)
            o = cli_option_find(v, args_letter_aliases[i].ours, strlen(args_letter_aliases[i].ours));
    return o;
}

static const char *args_answer(const struct cli_verb *v, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(args_answers); i++)
        if (args_answers[i].verb == v->id &&
            (str_eq(args_answers[i].theirs, name) || str_eq(args_answers[i].theirs, args_alias_of(name))))
            return args_answers[i].answer;
    return NULL;
}

static int args_unknown_letter(const struct cli_verb *v, char letter, struct err *err)
{
    const char *answer = NULL;

    for (size_t i = 0; i < ARRAY_LEN(args_answer_letters); i++)
        if (args_answer_letters[i].letter == letter)
            answer = args_answer(v, args_answer_letters[i].name);
    return err_set(err, ERR_USAGE, "'cove %s' has no flag '-%c'%s%s", v->name, letter, answer ? "; " : "",
                   answer ? answer : "");
}

static int args_unknown_flag(const struct cli_verb *v, const char *name, struct err *err)
{
    const char *answer = args_answer(v, name);
    struct suggest s;

    if (answer)
        return err_set(err, ERR_USAGE, "'cove %s' has no flag '--%s'; %s", v->name, name, answer);
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
    const struct cli_option *o = args_find_option(v, word, len);

    if (!o) {
        auto_free char *name = str_dup_n(word, min_size(len, 60));
        return args_is_default(v, name) ? 0 : args_unknown_flag(v, name, err);
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
    if (*i + 1 >= argc || str_eq(argv[*i + 1], "--"))
        return err_set(err, ERR_USAGE, "flag '--%s' needs a value: --%s %s", o->name, o->name, o->arg);
    args_add(a, o, argv[++*i]);
    return 0;
}

/* A cluster of letters: "-it", "-c CODE", "-cCODE". */
static int args_parse_letters(const struct cli_verb *v, struct args *a, char **argv, int argc, int *i, struct err *err)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct cli_option *o = args_find_letter(v, *p);

        if (!o && (unsigned char)*p > ' ' && (unsigned char)*p < 0x7f)
            return args_unknown_letter(v, *p, err);
        if (!o)
            return err_set(err, ERR_USAGE, "'cove %s': unknown flag; flags are ASCII letters", v->name);
        if (!o->arg) {
            args_add(a, o, NULL);
            a->items[a->n - 1].letter = true;
            continue;
        }
        if (p[1]) {
            args_add(a, o, p + 1);
            return 0;
        }
        if (*i + 1 >= argc || str_eq(argv[*i + 1], "--"))
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
    case VERB_SHELL:
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
    a.before_dashes = a.after_dashes ? a.nrest : a.nrest + argc - i;
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
