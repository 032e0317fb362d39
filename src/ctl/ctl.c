/* One program for all verbs that need a server, beside `cove` because it links libcurl and jansson. The table of verbs
 * and flags is that of src/cli, so help, manual pages and completion know them without asking this program.
 *
 * Some verbs have a second word (cove sandbox create): it comes right after the verb, and flags behind it. */
#include "ctl/ctl.h"

#include "base/str.h"
#include "base/suggest.h"
#include "cli/report.h"
#include "ctl/inside.h"

#include <signal.h>

static const struct second {
    enum verb_id verb;
    const char *words[9];
} seconds[] = {
    { VERB_SANDBOX, { "create", "ls", "info", "rm", "pause", "resume", "extend" } },
    { VERB_KEY, { "create", "ls", "revoke", "rotate" } },
};

static const struct second *second_of(enum verb_id verb)
{
    for (size_t i = 0; i < ARRAY_LEN(seconds); i++)
        if (seconds[i].verb == verb)
            return &seconds[i];
    return NULL;
}

static int check_second(const struct second *s, const char *verb, const char *word, struct err *err)
{
    struct suggest near;

    if (!word)
        return err_set(err, ERR_USAGE, "'cove %s' needs a word that says what to do; 'cove help %s' lists them", verb,
                       verb);
    suggest_init(&near, word);
    for (const char *const *w = s->words; *w; w++) {
        if (str_eq(*w, word))
            return 0;
        suggest_offer(&near, *w);
    }
    if (near.best)
        return err_set(err, ERR_USAGE, "'cove %s %.40s' does not exist; did you mean 'cove %s %s'?", verb, word, verb,
                       near.best);
    return err_set(err, ERR_USAGE, "'cove %s %.40s' does not exist; 'cove help %s' lists what does", verb, word, verb);
}

static int dispatch(struct ctl *c, const struct cli_verb *v, const char *second, struct err *err)
{
    switch (v->id) {
    case VERB_SANDBOX:
        return ctl_sandbox(c, second, err);
    case VERB_EXEC:
        return ctl_exec(c, err);
    case VERB_CP:
        return ctl_cp(c, err);
    case VERB_LOGS:
        return ctl_logs(c, err);
    case VERB_WATCH:
        return ctl_watch(c, err);
    case VERB_PS:
        return ctl_ps(c, err);
    case VERB_KEY:
        return ctl_key(c, second, err);
    default:
        return err_set(err, ERR_BUG, "'%s' is no verb of this program", v->name);
    }
}

static int run(struct ctl *c, const struct cli_verb *v, const char *second, struct err *err)
{
    const struct arg *url = args_find(&c->args, OPT_URL);
    struct client_settings set = { .url = url ? url->value : NULL };

    c->json = args_find(&c->args, OPT_JSON) != NULL;
    c->quiet = args_find(&c->args, OPT_QUIET) != NULL;
    if (ev_new(&c->ev, err) < 0 || client_new(c->ev, &set, &c->client, err) < 0)
        return -1;
    return dispatch(c, v, second, err);
}

int ctl_main(int argc, char **argv)
{
    const struct cli_verb *v = argc > 0 ? cli_verb_find(argv[0]) : NULL;
    bool json = args_mentions(argc, argv, "--json");
    struct err err = { 0 };
    struct ctl c = { 0 };
    const char *second = NULL;

    signal(SIGPIPE, SIG_IGN);
    if (!v) {
        err_set(&err, ERR_USAGE, "this program is a part of cove and is started by it");
        return report_error(&err, json);
    }
    const struct second *s = second_of(v->id);
    if (s) {
        second = argc > 1 ? argv[1] : NULL;
        if (check_second(s, v->name, second, &err) < 0)
            return report_error(&err, json);
        argc--;
        argv++;
    }
    int status = args_parse(v, argc, argv, &c.args, &err);
    if (status == 0)
        status = run(&c, v, second, &err);
    client_free(c.client);
    ev_free(c.ev);
    args_done(&c.args);
    return status < 0 ? report_error(&err, json) : status;
}
