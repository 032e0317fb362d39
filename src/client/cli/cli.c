/* Finds the verb and dispatches. Some verbs are separate programs (libexec/cove/cove-VERB), because
 * they link libraries that would slow the start of every `cove run`. */
#include "client/cli/cli.h"

#include "client/cli/args.h"
#include "client/cli/help.h"
#include "client/cli/report.h"
#include "core/base/suggest.h"
#include "client/cli/verbs.h"

#include "core/base/str.h"
#include "policy/policy.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* If descriptor 0, 1 or 2 is closed, the next opened file would get its number and be used as a
 * standard stream by mistake. */
static void cli_fill_standard_fds(void)
{
    struct pollfd p[3] = { { .fd = 0 }, { .fd = 1 }, { .fd = 2 } };

    if (poll(p, 3, 0) <= 0)
        return;
    for (int i = 0; i < 3; i++)
        if (p[i].revents & POLLNVAL && open("/dev/null", i == 0 ? O_RDONLY : O_WRONLY) < 0)
            _exit(125);
}

static void cli_exec_external(const char *libexec, const char *program, char **argv)
{
    char path[PATH_MAX];

    if (!*libexec || strspn(program, "abcdefghijklmnopqrstuvwxyz-") != strlen(program))
        return;
    int n = snprintf(path, sizeof(path), "%s/%s", libexec, program);
    if (n > 0 && (size_t)n < sizeof(path))
        execv(path, argv);
}

/* Verbs of similar tools, and what to type instead. */
static const struct {
    const char *theirs, *ours;
} cli_foreign_verbs[] = {
    { "stop", "'cove rm ID' ends a sandbox" },
    { "kill", "'cove rm ID' ends a sandbox" },
    { "delete", "'cove rm ID' ends a sandbox" },
    { "create", "'cove sandbox create' creates a sandbox" },
    { "new", "'cove sandbox create' creates a sandbox" },
    { "cat", "'cove files cat ID:PATH' prints a file of a sandbox" },
    { "templates", "'cove template ls' lists templates" },
    { "images", "there are no images; 'cove template ls' lists templates" },
    { "start", "'cove serve' starts the server, 'cove sandbox create' creates a sandbox" },
    { "list", "'cove ls' lists sandboxes" },
    { "enter", "'cove shell ID' starts a shell in a sandbox, 'cove run -t -- bash' in a new one" },
    { "ssh", "'cove shell ID' starts a shell in a sandbox, 'cove run -t -- bash' in a new one" },
    { "pull", "there are no images: a sandbox uses the programs of the host" },
    { "build", "there are no images: a sandbox uses the programs of the host" },
};

static const char *cli_foreign_verb_hint(const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(cli_foreign_verbs); i++)
        if (str_eq(cli_foreign_verbs[i].theirs, word))
            return cli_foreign_verbs[i].ours;
    return NULL;
}

/* In a short word one edit is much: `rm` is not what a user of `vm` means. */
static bool cli_is_plausible(const char *word, const char *suggestion)
{
    return strlen(word) > 4 || word[0] == suggestion[0];
}

/* The first word after `cove policy why` that is neither a flag nor the value of one. */
static const char *cli_why_subject(int argc, char **argv)
{
    static const char *const with_value[] = { "--method", "--url", "--cacert" };

    for (int i = 3; i < argc; i++) {
        bool skip = false;

        for (size_t k = 0; k < ARRAY_LEN(with_value); k++)
            skip = skip || str_eq(argv[i], with_value[k]);
        if (argv[i][0] != '-')
            return argv[i];
        i += skip;
    }
    return "";
}

/* A sandbox has neither the name of a built-in policy nor a name with a '/' or such an ending. */
static bool cli_is_policy_name(const char *name)
{
    for (const char *const *builtin = policy_builtins(); *builtin; builtin++)
        if (str_eq(*builtin, name))
            return true;
    return strchr(name, '/') || str_ends(name, ".yaml") || str_ends(name, ".yml") || str_ends(name, ".json");
}

/* `cove policy why SANDBOX` asks a server; the other commands of that verb read files. */
static const char *cli_program_of(const struct cli_verb *v, int argc, char **argv)
{
    bool asks_server = v->id == VERB_POLICY && argc > 2 && str_eq(argv[2], "why") &&
                       !cli_is_policy_name(cli_why_subject(argc, argv));

    return asks_server ? "cove-ctl" : v->program;
}

static int cli_unknown_verb(const char *word, bool json)
{
    const char *hint = cli_foreign_verb_hint(word);
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);
    struct suggest s;
    struct err err = { 0 };

    suggest_init(&s, word);
    for (size_t i = 0; i < n; i++)
        suggest_offer(&s, v[i].name);
    if (hint)
        err_set(&err, ERR_USAGE, "unknown verb '%.60s'; %s", word, hint);
    else if (s.best && cli_is_plausible(word, s.best))
        err_set(&err, ERR_USAGE, "unknown verb '%.60s'; did you mean '%s'?", word, s.best);
    else
        err_set(&err, ERR_USAGE,
                "unknown verb '%.60s'; 'cove help' lists the verbs, and 'cove run -- %.60s' runs a program", word,
                word);
    return report_error(&err, json);
}

static int cli_dispatch(const struct cli_verb *v, const struct args *a, const struct cli_settings *settings)
{
    switch (v->id) {
    case VERB_RUN:
        return verb_run(a, settings);
    case VERB_DOCTOR:
        return verb_doctor(a, settings);
    case VERB_RUNTIMES:
        return verb_runtimes(a);
    case VERB_EXPLAIN:
        return verb_explain(a);
    case VERB_ERRORS:
        return verb_errors(a);
    case VERB_COMPLETION:
        return verb_completion(a, settings->server);
    case VERB_HELP:
        return verb_help(a, settings->version);
    case VERB_VERSION:
        return verb_version(settings->version);
    default:
        return 125; /* separate programs, which cli_main has executed */
    }
}

static int cli_print_overview(const struct cli_settings *settings, bool asked)
{
    auto_buf out = { 0 };

    help_overview(&out, settings->version);
    if (asked)
        return report_text(&out);
    (void)!write(STDERR_FILENO, out.data, out.len);
    return err_info(ERR_USAGE)->exit;
}

static int cli_print_verb_help(const struct cli_verb *v, bool summary)
{
    auto_buf out = { 0 };

    if (summary)
        help_verb_short(&out, v);
    else
        help_verb(&out, v);
    return report_text(&out);
}

/* cove itself prints the help of verbs that are separate programs: cove VERB --help, cove
 * VERB WORD --help. After the sandbox of `exec` and `shell` a program begins, which may have its
 * own --help. Returns the flag, or NULL. */
static const char *cli_find_help_flag(const struct cli_verb *v, int argc, char **argv)
{
    bool program = v->id == VERB_EXEC || v->id == VERB_SHELL;

    for (int i = 2; i < argc && (i < 4 || !program) && !str_eq(argv[i], "--"); i++)
        if (str_eq(argv[i], "--help") || str_eq(argv[i], "-h"))
            return argv[i];
    return NULL;
}

int cli_main(int argc, char **argv, const struct cli_settings *settings)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    bool json = args_has_flag(argc, argv, "--json");
    struct args a = { 0 };
    struct err err = { 0 };

    cli_fill_standard_fds();
    if (!word || str_eq(word, "--help") || str_eq(word, "-h"))
        return cli_print_overview(settings, word != NULL);
    if (str_eq(word, "--version") || str_eq(word, "-V"))
        return verb_version(settings->version);
    if (str_eq(word, "__man") || str_eq(word, "__docs"))
        return verb_gendocs(argc - 1, argv + 1);
    if (str_eq(word, "__complete")) {
        cli_exec_external(settings->find_libexec(), "cove-ctl", argv + 1);
        return 0; /* completion is silent */
    }
    if (word[0] == '-') {
        err_set(&err, ERR_USAGE, "the verb comes first: cove VERB [FLAGS], for example 'cove run %.60s ...'", word);
        return report_error(&err, json);
    }
    const struct cli_verb *v = cli_verb_find(word);
    if (!v) {
        char program[64];

        if ((size_t)snprintf(program, sizeof(program), "cove-%s", word) < sizeof(program))
            cli_exec_external(settings->find_libexec(), program, argv + 1);
        return cli_unknown_verb(word, json);
    }
    const char *help = v->program ? cli_find_help_flag(v, argc, argv) : NULL;
    /* `cove serve --help` also lists the settings, so the server prints it. */
    if (help && (v->id != VERB_SERVE || str_eq(help, "-h")))
        return cli_print_verb_help(v, str_eq(help, "-h"));
    if (v->program) {
        const char *program = cli_program_of(v, argc, argv);

        cli_exec_external(settings->find_libexec(), program, argv + 1);
        err_set(&err, str_eq(program, "cove-policy") ? ERR_POLICY_PROGRAM : ERR_CTL_PROGRAM,
                "%s not found next to cove-runtime", program);
        return report_error(&err, json);
    }
    if (args_parse(v, argc - 1, argv + 1, &a, &err) < 0)
        return report_error(&err, json);
    const struct arg *asked = args_find(&a, OPT_HELP);
    int rc = asked ? cli_print_verb_help(v, asked->letter) : cli_dispatch(v, &a, settings);
    args_done(&a);
    return rc;
}
