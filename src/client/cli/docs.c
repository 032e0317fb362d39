/* docs/cli.md and docs/errors.md, from the tables. Cells of a Markdown table may not hold a bar. */
#include "client/cli/help.h"

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/base/text.h"

static void docs_add_cell(struct buf *out, const char *s)
{
    for (; *s; s++)
        buf_addf(out, *s == '|' ? "\\%c" : "%c", *s);
}

static void docs_flag_row(struct buf *out, const struct cli_option *o)
{
    char num[LIMIT_TEXT];
    const char *dflt = cli_option_default(o, num);

    buf_adds(out, "| `");
    if (o->letter)
        buf_addf(out, "-%c`, `", o->letter);
    help_flag(out, o);
    buf_adds(out, "` | ");
    docs_add_cell(out, o->help);
    if (dflt)
        buf_addf(out, " | %s |\n", dflt);
    else
        buf_adds(out, " | |\n");
}

static void docs_verb_section(struct buf *out, const struct cli_verb *v)
{
    buf_addf(out, "\n## cove %s\n\n%c%s.\n\n```\n", v->name, v->brief[0] - ('a' - 'A'), v->brief + 1);
    for (size_t i = 0; v->synopsis[i]; i++)
        buf_addf(out, "cove %s\n", v->synopsis[i]);
    buf_adds(out, "```\n");
    for (size_t i = 0; v->text[i]; i++) {
        buf_adds(out, "\n");
        text_wrap(out, v->text[i], 0, 0, 120);
    }
    for (const struct cli_option *o, *prev = NULL; (o = cli_option_shown(v, prev)); prev = o) {
        if (!prev || prev->group != o->group)
            buf_addf(out, "\n| %s | | default |\n|---|---|---|\n", cli_group_title(o->group));
        docs_flag_row(out, o);
    }
    buf_adds(out, "\n```sh\n");
    for (const struct cli_example *e = v->examples; e->command; e++)
        buf_addf(out, "%s   # %s\n", e->command, e->description);
    buf_adds(out, "```\n");
}

void help_markdown(struct buf *out)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    buf_adds(out,
             "# The command line\n\n"
             "This page is written by `cove __docs cli` from the table that parses the command line; `cove VERB "
             "--help` and the\nmanual pages come from the same table. For what to do with it, see [run.md](run.md)."
             "\n\nSizes are written `512K`, `256M`, `2G`; times `500ms`, `30s`, `5m`, `1h`; processors `0.5`, `2`.\n"
             "`--flag value` and `--flag=value` mean the same; letters may be joined (`-it`).\n\n"
             "| verb | |\n|---|---|\n");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "| [`%s`](#cove-%s) | %s |\n", v[i].name, v[i].name, v[i].brief);
    for (size_t i = 0; i < n; i++)
        docs_verb_section(out, &v[i]);
    buf_adds(out, "\n## Exit status of run and enter\n\n| status | meaning |\n|---|---|\n");
    for (const struct cli_exit *e = cli_exits(); e->code; e++)
        buf_addf(out, "| %s | %s |\n", e->code, e->means);
    buf_adds(out,
             "\nThe other verbs end with 0, with 2 when the command line is wrong, and with 125 when they failed.\n");
}

void help_errors_markdown(struct buf *out)
{
    buf_adds(out, "# Errors\n\n"
                  "Every error that cove reports has a code that never changes its meaning. `cove errors CODE` prints "
                  "the same text.\nThis page is written by `cove __docs errors`.\n");
    for (int i = 1; i < ERR_COUNT; i++) {
        const struct err_info *e = err_info((enum err_id)i);

        buf_addf(out, "\n## %s\n\n%s\n\n**What to do.** %s\n\nExit status %d, HTTP status %d.\n", e->code, e->cause,
                 e->fix, e->exit, e->http);
    }
}
