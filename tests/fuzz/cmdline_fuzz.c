/* The command line of every verb, from words to a request and its plan. One word per line; the
 * first names the verb.
 *
 * Checked in addition to memory errors: an error has a code and a message; an accepted request
 * is consistent (every variable has a name and a value, every bind an absolute target, the
 * limits pass their own check). */
#include "client/cli/args.h"
#include "client/cli/plan.h"
#include "client/cli/program.h"
#include "client/cli/run_options.h"

#include "core/base/buf.h"
#include "core/base/str.h"

#define WORDS_MAX 200

static void must(bool ok)
{
    if (!ok)
        abort();
}

static size_t split(char *text, char **words)
{
    size_t n = 0;

    while (n < WORDS_MAX) {
        char *end = strchr(text, '\n');

        words[n++] = text;
        if (!end)
            break;
        *end = '\0';
        text = end + 1;
    }
    words[n] = NULL;
    return n;
}

static void check_request(const struct run_options *r)
{
    struct err err = { 0 };

    for (size_t i = 0; i < r->nenv; i++)
        must(strchr(r->env[i], '=') > r->env[i]);
    for (size_t i = 0; i < r->nbinds; i++)
        must(r->binds[i].src[0] && r->binds[i].dst[0] == '/' && !strstr(r->binds[i].dst, "/../"));
    must(r->cwd[0] == '/');
    must(limits_check(&r->limits, &err) == 0);
    must(r->level == LEVEL_STANDARD);

    struct program p = { .argv = r->words, .argc = (size_t)r->nwords, .script_fd = -1 };
    auto_buf plan = { 0 };
    plan_print(r, &p, &plan);
    plan_json(r, &p, &plan);
}

/* The remaining words are those of the line, in order. */
static void check_rest(const struct args *a, int argc, char **argv)
{
    int at = 1;

    for (int i = 0; i < a->nrest; i++) {
        while (at < argc && argv[at] != a->rest[i])
            at++;
        must(at++ < argc);
    }
    must(a->nrest >= 0 && !a->rest[a->nrest]);
}

static void check_line(const struct cli_verb *v, int argc, char **argv)
{
    struct args a = { 0 };
    struct run_options r = { 0 };
    struct err err = { 0 };

    if (args_parse(v, argc, argv, &a, &err) < 0) {
        must(err.id == ERR_USAGE && err.msg[0]);
        return;
    }
    check_rest(&a, argc, argv);
    for (size_t i = 0; i < a.n; i++)
        must(a.items[i].opt->verb == v->id &&
             (a.items[i].value != NULL || !a.items[i].opt->arg || cli_arg_optional(a.items[i].opt)));
    if (v->id == VERB_RUN && !args_find(&a, OPT_HELP)) {
        if (run_options_build(&a, NULL, NULL, &r, &err) < 0)
            must(err.id != ERR_NONE && err.id != ERR_BUG && err.msg[0]);
        else
            check_request(&r);
        run_options_done(&r);
    }
    args_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = str_dup_n((const char *)data, size);
    auto_free char *line = str_dup(text);
    char *words[WORDS_MAX + 1];
    const char *program, *arg;
    size_t n = split(text, words);
    const struct cli_verb *v = cli_verb_find(words[0]);

    check_line(v ? v : cli_verb_find("run"), (int)n, words);
    (void)args_has_flag((int)n, words, "--json");
    if (program_shebang(line, &program, &arg))
        must(program[0] && (!arg || arg[0]));
    return 0;
}
