/* Help of a verb: synopsis, description, flags grouped by purpose, examples that can be pasted, and
 * exit statuses. The layout is always 80 columns wide, independent of the terminal, so that help
 * looks the same in a log. */
#include "client/cli/help.h"

#include "core/base/str.h"
#include "core/base/text.h"

#define WIDTH 80
#define FLAG_COLUMN 26
#define SHORT_EXAMPLES 3

static void help_pad(struct buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_add(out, " ", 1);
}

void help_flag(struct buf *out, const struct cli_option *o)
{
    buf_addf(out, "--%s", o->name);
    if (cli_arg_optional(o))
        buf_addf(out, "[=%.*s]", (int)strlen(o->arg) - 2, o->arg + 1);
    else if (o->arg)
        buf_addf(out, " %s", o->arg);
}

static void help_flag_row(struct buf *out, const struct cli_option *o)
{
    auto_buf text = { 0 };
    char num[LIMIT_TEXT];
    const char *dflt = cli_option_default(o, num);
    size_t start = out->len;

    if (o->letter)
        buf_addf(out, "  -%c, ", o->letter);
    else
        buf_adds(out, "      ");
    help_flag(out, o);
    if (out->len - start + 2 > FLAG_COLUMN) {
        buf_adds(out, "\n");
        start = out->len;
    }
    help_pad(out, FLAG_COLUMN - (out->len - start));
    buf_adds(&text, o->help);
    if (dflt)
        buf_addf(&text, " [%s]", dflt);
    text_wrap(out, text.data, FLAG_COLUMN, FLAG_COLUMN, WIDTH);
}

static void help_flags(struct buf *out, const struct cli_verb *v)
{
    for (const struct cli_option *o, *prev = NULL; (o = cli_option_shown(v, prev)); prev = o) {
        if (!prev || prev->group != o->group)
            buf_addf(out, "\n%s:\n", cli_group_title(o->group));
        help_flag_row(out, o);
    }
}

void help_verb(struct buf *out, const struct cli_verb *v)
{
    buf_addf(out, "cove %s - %s\n\n", v->name, v->brief);
    for (size_t i = 0; v->synopsis[i]; i++)
        buf_addf(out, "%s cove %s\n", i == 0 ? "Usage:" : "      ", v->synopsis[i]);
    for (size_t i = 0; v->text[i]; i++) {
        buf_adds(out, "\n");
        text_wrap(out, v->text[i], 0, 0, WIDTH);
    }
    help_flags(out, v);
    if (v->id == VERB_RUN || v->id == VERB_SANDBOX || v->id == VERB_EXECUTE)
        buf_adds(out, "\nSizes are written 512K, 256M, 2G; times 500ms, 30s, 5m, 1h; processors 0.5, 2.\n");
    buf_adds(out, "\nExamples:\n");
    for (const struct cli_example *e = v->examples; e->command; e++)
        buf_addf(out, "  # %s\n  %s\n", e->description, e->command);
    if (!v->exit_codes)
        return;
    buf_adds(out, "\nExit status:\n");
    for (const struct cli_exit *e = cli_exits(); e->code; e++) {
        buf_addf(out, "  %-6s ", e->code);
        text_wrap(out, e->means, 9, 9, WIDTH);
    }
}

void help_verb_short(struct buf *out, const struct cli_verb *v)
{
    auto_buf flags = { 0 };

    buf_addf(out, "cove %s - %s\n\n", v->name, v->brief);
    for (size_t i = 0; v->synopsis[i]; i++)
        buf_addf(out, "%s cove %s\n", i == 0 ? "Usage:" : "      ", v->synopsis[i]);
    buf_adds(out, "\nExamples:\n");
    for (size_t i = 0; i < SHORT_EXAMPLES && v->examples[i].command; i++)
        buf_addf(out, "  %s\n", v->examples[i].command);
    buf_adds(out, "\nFlags:\n  ");
    for (const struct cli_option *o, *prev = NULL; (o = cli_option_shown(v, prev)); prev = o)
        buf_addf(&flags, "%s--%s", prev ? " " : "", o->name);
    text_wrap(out, flags.data, 2, 2, WIDTH);
    buf_addf(out, "\n'cove %s --help' explains the flags.\n", v->name);
}

#define VERBS(...) \
    (const enum verb_id[]){ __VA_ARGS__ }, sizeof((const enum verb_id[]){ __VA_ARGS__ }) / sizeof(enum verb_id)

static const struct {
    const char *title;
    const enum verb_id *verbs;
    size_t n;
} help_groups[] = {
    { "Start with", VERBS(VERB_RUN, VERB_SERVE, VERB_EXECUTE, VERB_SANDBOX, VERB_SHELL, VERB_MCP) },
    { "Sandboxes", VERBS(VERB_LS, VERB_RM, VERB_EXEC, VERB_CONTEXT, VERB_TOOL, VERB_VALIDATE, VERB_ATTACH, VERB_PS,
                         VERB_LOGS, VERB_SCRIPT) },
    { "Files", VERBS(VERB_CP, VERB_FILES, VERB_WATCH) },
    { "Access and quotas", VERBS(VERB_LOGIN, VERB_LOGOUT, VERB_WHOAMI, VERB_KEY, VERB_TOKEN, VERB_TENANT, VERB_USER,
                                 VERB_ROLE, VERB_BUDGET, VERB_SECRET) },
    { "Operation of a server", VERBS(VERB_TOP, VERB_EVENTS, VERB_USAGE, VERB_AUDIT, VERB_TEMPLATE, VERB_POOL, VERB_GC,
                                     VERB_BACKUP, VERB_RESTORE) },
    { "Walls and policies", VERBS(VERB_DOCTOR, VERB_POLICY, VERB_RUNTIMES, VERB_EXPLAIN) },
    { "Without a sandbox", VERBS(VERB_CALC) },
    { "Help", VERBS(VERB_ERRORS, VERB_COMPLETION, VERB_HELP, VERB_VERSION) },
};

static const struct cli_verb *help_find_verb(enum verb_id id)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    while (n-- > 0 && v->id != id)
        v++;
    return v;
}

void help_overview(struct buf *out, const char *version)
{
    buf_addf(out, "cove %s - run untrusted code in fast, locked-down sandboxes\n\n", version);
    buf_adds(out, "Usage: cove VERB [FLAGS] ...\n");
    for (size_t g = 0; g < ARRAY_LEN(help_groups); g++) {
        buf_addf(out, "\n%s:\n", help_groups[g].title);
        for (size_t i = 0; i < help_groups[g].n; i++) {
            const struct cli_verb *v = help_find_verb(help_groups[g].verbs[i]);

            buf_addf(out, "  %-11s %s\n", v->name, v->brief);
        }
    }
    buf_adds(out, "\nExamples:\n"
                  "  cove run -- ls -l /                         run a program in a new sandbox\n"
                  "  cove run -c 'print(1)'                      run a line of Python\n"
                  "  cove run script.py                          run a script\n"
                  "  cove run --dry-run -- true                  show what would be enforced\n"
                  "\n'cove VERB -h' is a summary of a verb, 'cove VERB --help' its complete help;\n"
                  "'cove errors CODE' explains an error.\n");
}
