/* cove-calc - `cove calc`: the exact calculator, without a server.
 *
 * It is a separate program because it links GMP and MPFR: `cove` links only libc. Without an
 * expression, or with `-`, each line of standard input is one expression and gets one answer, so a
 * program can use one process for many. */
#include "core/base/fd.h"
#include "core/base/str.h"
#include "core/calc/calc.h"
#include "client/cli/args.h"
#include "client/cli/report.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define WORDS_MAX 256

struct calc_command {
    struct args args;
    struct calc_settings settings;
    bool json;
};

static void calc_print_steps(const struct calc_result *c, struct buf *out)
{
    if (c->method == CALC_BY_WORDS)
        buf_addf(out, "  read as %s\n", c->expression);
    for (size_t i = 0; i < c->nsteps; i++)
        buf_addf(out, "  %s\n", c->steps[i]);
    if (c->omitted_steps)
        buf_addf(out, "  and %zu more steps\n", c->omitted_steps);
}

static void calc_print_answer(const struct calc_result *c, struct buf *out)
{
    if (c->error_bound)
        buf_addf(out, "\u2248 %s (within %s)\n", c->answer, c->error_bound);
    else if (!c->exact)
        buf_addf(out, "\u2248 %s\n", c->answer);
    else if (c->decimal && !c->decimal_exact)
        buf_addf(out, "%s \u2248 %s\n", c->answer, c->decimal);
    else
        buf_addf(out, "%s\n", c->answer);
}

static int calc_print_result(const struct calc_command *k, const struct calc_result *c, bool in_batch)
{
    auto_buf out = { 0 };
    struct err err;
    struct jsonw w;
    int status = 0;

    if (!c->answer)
        err_set(&err, ERR_CALC_SYNTAX, "%.200s", c->explanation);
    if (!c->answer && !k->json)
        return report_error(&err, false);
    if (k->json) {
        jsonw_init(&w, &out, in_batch ? 0 : report_json_indent());
        jsonw_object(&w);
        calc_result_json(c, &w);
        jsonw_end_object(&w);
        buf_adds(&out, "\n");
    } else {
        if (k->settings.steps)
            calc_print_steps(c, &out);
        calc_print_answer(c, &out);
    }
    status = report_text(&out);
    return status == 0 && !c->answer ? err_info(ERR_CALC_SYNTAX)->exit : status;
}

static int calc_answer(const struct calc_command *k, const char *text, size_t len, bool in_batch)
{
    struct calc_result c;
    struct err err = { 0 };

    if (calc_solve(text, len, &k->settings, &c, &err) < 0)
        return report_error(&err, k->json);
    int status = calc_print_result(k, &c, in_batch);
    calc_result_done(&c);
    return status;
}

/* Reads the rest of a line that is too long for the buffer. */
static void calc_skip_line(void)
{
    int c;

    while ((c = getchar()) != EOF && c != '\n')
        ;
}

/* The status is that of the last line that failed. */
static int calc_answer_lines(const struct calc_command *k)
{
    static char line[CALC_INPUT_MAX + 3];
    bool prompt = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    int status = 0;

    for (;;) {
        if (prompt)
            (void)fd_write_all(STDOUT_FILENO, "calc> ", 6);
        if (!fgets(line, sizeof(line), stdin))
            break;
        size_t len = strlen(line);
        bool whole = len > 0 && line[len - 1] == '\n';
        while (len > 0 && isspace((unsigned char)line[len - 1]))
            len--;
        if (!whole && len > CALC_INPUT_MAX)
            calc_skip_line();
        if (len == 0)
            continue;
        int failed = calc_answer(k, line, len, true);
        status = failed ? failed : status;
    }
    if (prompt)
        (void)fd_write_all(STDOUT_FILENO, "\n", 1);
    return status;
}

static int calc_read_options(struct calc_command *k, struct err *err)
{
    const struct arg *digits = args_find(&k->args, OPT_DIGITS);
    uint64_t n;

    k->settings = (struct calc_settings){ .work = CALC_WORK_COMMAND, .words = true };
    k->settings.steps = args_find(&k->args, OPT_STEPS) != NULL;
    if (!digits)
        return 0;
    if (!str_to_u64(digits->value, CALC_DIGITS_MAX, &n) || n == 0)
        return err_set(err, ERR_USAGE, "--digits %.40s: must be an integer from 1 to %u", digits->value,
                       CALC_DIGITS_MAX);
    k->settings.digits = (unsigned)n;
    return 0;
}

static int calc_dispatch(struct calc_command *k, struct err *err)
{
    auto_buf text = { 0 };

    if (calc_read_options(k, err) < 0)
        return -1;
    if (k->args.nrest == 0 || (k->args.nrest == 1 && str_eq(k->args.rest[0], "-")))
        return calc_answer_lines(k);
    for (int i = 0; i < k->args.nrest; i++)
        buf_addf(&text, "%s%s", i ? " " : "", k->args.rest[i]);
    return calc_answer(k, text.data, text.len, false);
}

/* "-2 + 3" is an expression and not a flag: "--" is inserted before it. Returns the new number of
 * words. */
static int calc_insert_dashes(int argc, char **argv, char **ret)
{
    static char dashes[] = "--";
    bool done = false;
    int n = 0;

    for (int i = 0; i < argc; i++) {
        char next = argv[i][0] == '-' ? argv[i][1] : '\0';

        done |= str_eq(argv[i], "--");
        if (!done && i > 0 && next && (isdigit((unsigned char)next) || next == '(' || next == '.')) {
            ret[n++] = dashes;
            done = true;
        }
        ret[n++] = argv[i];
    }
    ret[n] = NULL;
    return n;
}

int main(int argc, char **argv)
{
    const struct cli_verb *v = argc > 0 ? cli_verb_find(argv[0]) : NULL;
    struct calc_command k = { .json = args_has_flag(argc, argv, "--json") };
    char *words[WORDS_MAX + 2];
    struct err err = { 0 };
    int status = -1;

    signal(SIGPIPE, SIG_IGN);
    if (!v || v->id != VERB_CALC)
        err_set(&err, ERR_USAGE, "this program is a part of cove and must be started by it");
    else if (argc > WORDS_MAX)
        err_set(&err, ERR_USAGE, "the expression has too many words; quote it, or pass it on standard input");
    else if (args_parse(v, calc_insert_dashes(argc, argv, words), words, &k.args, &err) == 0)
        status = calc_dispatch(&k, &err);
    args_done(&k.args);
    return status < 0 ? report_error(&err, k.json) : status;
}
