/* Manual pages in mdoc(7), from the same table as --help. Text is escaped for roff: a backslash
 * becomes \e, a leading dot or quote is prefixed with a zero-width \&, and a hyphen in a command
 * becomes \- so that the command can be pasted. */
#include "client/cli/help.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

static void man_add_roff(struct buf *out, const char *s, bool literal)
{
    bool flag = true; /* a hyphen here begins a flag */

    if (*s == '.' || *s == '\'')
        buf_adds(out, "\\&");
    for (; *s; s++) {
        if (*s == '\\')
            buf_adds(out, "\\e");
        else if (*s == '-' && (literal || flag))
            buf_adds(out, "\\-");
        else if (*s == '\'' && literal)
            buf_adds(out, "\\(aq");
        else if (*s == '"')
            buf_adds(out, "\\(dq");
        else
            buf_add(out, s, 1);
        flag = *s == ' ' || *s == '(' || (flag && *s == '-');
    }
}

/* Starts a new line for every sentence, as mdoc requires, and wraps long lines. */
static void man_add_prose(struct buf *out, const char *s)
{
    while (*s) {
        const char *end = strstr(s, ". ");
        size_t len = end ? (size_t)(end - s) + 1 : strlen(s);
        auto_free char *sentence = str_dup_n(s, len);
        auto_buf lines = { 0 };
        char *save = NULL;

        text_wrap(&lines, sentence, 0, 0, 76);
        for (char *line = strtok_r(lines.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            man_add_roff(out, line, false);
            buf_adds(out, "\n");
        }
        s += len;
        s += strspn(s, " ");
    }
}

static void man_head(struct buf *out, const char *name, const char *upper, const char *brief)
{
    buf_addf(out, ".Dd $Mdocdate$\n.Dt %s 1\n.Os\n.Sh NAME\n.Nm %s\n.Nd %s\n", upper, name, brief);
}

static void man_option(struct buf *out, const struct cli_option *o)
{
    char num[LIMIT_TEXT];
    const char *dflt = cli_option_default(o, num);

    buf_adds(out, ".It ");
    if (o->letter)
        buf_addf(out, "Fl %c , ", o->letter);
    buf_addf(out, "Fl \\-%s", o->name);
    if (cli_arg_optional(o))
        buf_addf(out, " Ns Oo = Ns Ar %.*s Oc", (int)strlen(o->arg) - 2, o->arg + 1);
    else if (o->arg)
        buf_addf(out, " Ar %s", o->arg);
    buf_adds(out, "\n");
    auto_free char *sentence = str_printf("%s.", o->help);
    man_add_prose(out, sentence);
    if (dflt)
        buf_addf(out, "The default is\n.Ql %s .\n", dflt);
}

static void man_options(struct buf *out, const struct cli_verb *v)
{
    buf_adds(out, ".Sh OPTIONS\n");
    const struct cli_option *prev = NULL;
    for (const struct cli_option *o; (o = cli_option_shown(v, prev)); prev = o) {
        if (!prev || prev->group != o->group)
            buf_addf(out, "%s.Ss %s\n.Bl -tag -width Ds\n", prev ? ".El\n" : "", cli_group_title(o->group));
        man_option(out, o);
    }
    if (prev)
        buf_adds(out, ".El\n");
    if (v->id == VERB_RUN)
        buf_adds(out, ".Pp\nSizes are written 512K, 256M, 2G; times 500ms, 30s, 5m, 1h; processors 0.5, 2.\n");
}

static void man_examples(struct buf *out, const struct cli_verb *v)
{
    buf_adds(out, ".Sh EXAMPLES\n");
    for (const struct cli_example *e = v->examples; e->command; e++) {
        buf_adds(out, e == v->examples ? "" : ".Pp\n");
        buf_addf(out, "%c%s:\n.Dl ",
                 e->description[0] - ('a' <= e->description[0] && e->description[0] <= 'z' ? 'a' - 'A' : 0),
                 e->description + 1);
        man_add_roff(out, e->command, true);
        buf_adds(out, "\n");
    }
}

static void man_exit_status(struct buf *out, const struct cli_verb *v)
{
    buf_adds(out, ".Sh EXIT STATUS\n");
    if (!v->exit_codes) {
        buf_adds(out, "0 on success, 2 if the command line is wrong, 125 on failure.\n");
        return;
    }
    buf_adds(out, ".Bl -tag -width 128+N -compact\n");
    for (const struct cli_exit *e = cli_exits(); e->code; e++)
        buf_addf(out, ".It %s\n%s.\n", e->code, e->means);
    buf_adds(out, ".El\n");
}

static void man_verb(struct buf *out, const struct cli_verb *v)
{
    auto_free char *name = str_printf("cove-%s", v->name);
    auto_free char *upper = str_dup(name);

    for (char *p = upper; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            *p = (char)(*p - 'a' + 'A');
    man_head(out, name, upper, v->brief);
    buf_adds(out, ".Sh SYNOPSIS\n");
    for (size_t i = 0; v->synopsis[i]; i++) {
        buf_addf(out, "%s.Ic cove ", i ? ".Pp\n" : "");
        man_add_roff(out, v->synopsis[i], true);
        buf_adds(out, "\n");
    }
    buf_adds(out, ".Sh DESCRIPTION\n");
    for (size_t i = 0; v->text[i]; i++) {
        buf_adds(out, i ? ".Pp\n" : "");
        man_add_prose(out, v->text[i]);
    }
    man_options(out, v);
    man_exit_status(out, v);
    man_examples(out, v);
    buf_adds(out, ".Sh SEE ALSO\n.Xr cove 1\n");
}

static int man_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void man_cove(struct buf *out)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    man_head(out, "cove", "COVE", "run untrusted code in fast, locked-down sandboxes");
    buf_adds(out, ".Sh SYNOPSIS\n.Nm\n.Ar verb\n.Op Ar flags\n.Op Ar arguments\n.Sh DESCRIPTION\n"
                  "cove runs programs in sandboxes, on this host or on a server.\n"
                  "Each verb has its own manual page.\n.Bl -tag -width completion\n");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, ".It Ic %s\n%s.\n", v[i].name, v[i].brief);
    buf_adds(out, ".El\n.Sh ENVIRONMENT\n.Bl -tag -width COVE_STATE_DIR\n"
                  ".It Ev COVE_LIBEXEC\nDirectory of cove\\-runtime, if it is not where cove was installed.\n"
                  ".It Ev COVE_STATE_DIR\nDefault of\n.Fl \\-state-dir .\n.El\n"
                  ".Sh FILES\n.Bl -tag -width Ds\n.It Pa /run/cove\nLocks, and the sockets of kept sandboxes.\n.El\n"
                  ".Sh EXIT STATUS\nThe status of the verb; 2 if the verb does not exist.\n"
                  ".Sh SEE ALSO\n");
    auto_free const char **names = mem_new_array(const char *, n);
    for (size_t i = 0; i < n; i++)
        names[i] = v[i].name;
    qsort(names, n, sizeof(names[0]), man_by_name);
    for (size_t i = 0; i < n; i++)
        buf_addf(out, ".Xr cove-%s 1%s\n", names[i], i + 1 < n ? " ," : "");
}

void help_man(struct buf *out, const struct cli_verb *v)
{
    if (v)
        man_verb(out, v);
    else
        man_cove(out);
}
