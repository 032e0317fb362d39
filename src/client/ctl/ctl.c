/* One program for all verbs that need a server, separate from `cove` because it links libcurl and
 * jansson. The table of verbs and flags is the one of src/client/cli, so help, manual pages and
 * completion do not need this program.
 *
 * Some verbs have a subcommand (cove sandbox create): it follows the verb, and the
 * flags follow it. */
#include "client/ctl/ctl.h"

#include "core/base/str.h"
#include "core/base/suggest.h"
#include "client/cli/report.h"
#include "client/ctl/ctl_internal.h"

#include <signal.h>

/* Commands of similar tools, and their names here. */
static const char *ctl_foreign_subcommand(const struct cli_verb *v, const char *word)
{
    static const char *const names[][2] = {
        { "list", "ls" },    { "inspect", "info" }, { "inspect", "show" }, { "delete", "rm" }, { "remove", "rm" },
        { "get", "info" },   { "get", "show" },     { "show", "info" },    { "info", "show" }, { "inspect", "stat" },
        { "read", "cat" },   { "move", "mv" },      { "rename", "mv" },    { "put", "set" },   { "update", "set" },
        { "add", "create" }, { "create", "add" },   { "kill", "rm" },      { "stop", "rm" },   { "create", "set" }
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (const char *const *w = v->words; *w && str_eq(names[i][0], word); w++)
            if (str_eq(names[i][1], *w))
                return *w;
    return NULL;
}

static int ctl_check_subcommand(const struct cli_verb *v, const char *word, struct err *err)
{
    auto_buf all = { 0 };
    struct suggest near;

    suggest_init(&near, word ? word : "");
    for (const char *const *w = v->words; *w; w++) {
        if (word && str_eq(*w, word))
            return 0;
        suggest_offer(&near, *w);
        buf_addf(&all, "%s%s", w == v->words ? "" : w[1] ? ", " : " or ", *w);
    }
    if (!word || word[0] == '-')
        return err_set(err, ERR_USAGE, "'cove %s' needs a command: %s", v->name, all.data);
    const char *best = ctl_foreign_subcommand(v, word);
    if (!best)
        best = near.best;
    if (best)
        return err_set(err, ERR_USAGE, "unknown command 'cove %s %.40s'; did you mean 'cove %s %s'?", v->name, word,
                       v->name, best);
    return err_set(err, ERR_USAGE, "unknown command 'cove %s %.40s'; use one of: %s", v->name, word, all.data);
}

static int ctl_dispatch(struct ctl *c, const struct cli_verb *v, const char *second, struct err *err)
{
    switch (v->id) {
    case VERB_LS:
        return ctl_ls(c, err);
    case VERB_RM:
        return ctl_rm(c, err);
    case VERB_SHELL:
        return ctl_shell(c, err);
    case VERB_SANDBOX:
        return ctl_sandbox(c, second, err);
    case VERB_EXEC:
        return ctl_exec(c, err);
    case VERB_EXECUTE:
        return ctl_execute(c, err);
    case VERB_VALIDATE:
        return ctl_validate(c, err);
    case VERB_CONTEXT:
        return ctl_context(c, second, err);
    case VERB_ATTACH:
        return ctl_attach(c, err);
    case VERB_CP:
        return ctl_cp(c, err);
    case VERB_FILES:
        return ctl_files(c, second, err);
    case VERB_TEMPLATE:
        return ctl_template(c, second, err);
    case VERB_SCRIPT:
        return ctl_script(c, second, err);
    case VERB_SECRET:
        return ctl_secret(c, second, err);
    case VERB_LOGS:
        return ctl_logs(c, err);
    case VERB_WATCH:
        return ctl_watch(c, err);
    case VERB_EVENTS:
        return ctl_events(c, err);
    case VERB_MCP:
        return ctl_mcp(c, second, err);
    case VERB_AUDIT:
        return ctl_audit(c, second, err);
    case VERB_TOP:
        return ctl_top(c, err);
    case VERB_USAGE:
        return ctl_usage(c, err);
    case VERB_BUDGET:
        return ctl_budget(c, second, err);
    case VERB_GC:
        return ctl_gc(c, err);
    case VERB_PS:
        return ctl_ps(c, err);
    case VERB_KEY:
        return ctl_key(c, second, err);
    case VERB_POOL:
        return ctl_pool(c, second, err);
    case VERB_TENANT:
        return ctl_tenant(c, second, err);
    case VERB_USER:
        return ctl_user(c, second, err);
    case VERB_ROLE:
        return ctl_role(c, second, err);
    case VERB_TOKEN:
        return ctl_token(c, second, err);
    case VERB_TOOL:
        return ctl_tool(c, second, err);
    case VERB_POLICY:
        return ctl_policy(c, second, err);
    case VERB_LOGIN:
        return ctl_login(c, err);
    case VERB_LOGOUT:
        return ctl_logout(c, err);
    case VERB_WHOAMI:
        return ctl_whoami(c, err);
    default:
        return err_set(err, ERR_BUG, "'%s' is not a verb of this program", v->name);
    }
}

/* Verbs that work without a server if a kept sandbox is meant. */
static bool ctl_knows_kept(const struct cli_verb *v)
{
    return v->id == VERB_LS || v->id == VERB_RM || v->id == VERB_SHELL || v->id == VERB_EXEC || v->id == VERB_CP;
}

static int ctl_make_client(struct ctl *c, const struct cli_verb *v, struct err *err)
{
    const struct arg *url = args_find(&c->args, OPT_URL), *ca = args_find(&c->args, OPT_CACERT);
    struct client_settings set = { .url = url ? url->value : NULL, .cacert = ca ? ca->value : NULL };

    if (client_new(c->ev, &set, &c->client, err) == 0)
        return 0;
    c->no_client = *err;
    return ctl_knows_kept(v) ? 0 : -1;
}

static int ctl_run_verb(struct ctl *c, const struct cli_verb *v, const char *second, struct err *err)
{
    c->verb = v;
    c->json = args_find(&c->args, OPT_JSON) != NULL;
    c->quiet = args_find(&c->args, OPT_QUIET) != NULL;
    bool alone = v->id == VERB_LOGIN || v->id == VERB_LOGOUT || v->id == VERB_MCP;
    if (ev_new(&c->ev, err) < 0 || (!alone && ctl_make_client(c, v, err) < 0))
        return -1;
    return ctl_dispatch(c, v, second, err);
}

int ctl_main(int argc, char **argv, const struct kept_access *kept)
{
    const struct cli_verb *v = argc > 0 ? cli_verb_find(argv[0]) : NULL;
    bool json = args_has_flag(argc, argv, "--json");
    struct err err = { 0 };
    struct ctl c = { .kept = kept };
    const char *second = NULL;

    signal(SIGPIPE, SIG_IGN);
    if (argc > 0 && str_eq(argv[0], "__complete")) {
        int done = ctl_complete(&c, argc, argv);

        client_free(c.client);
        ev_free(c.ev);
        return done;
    }
    if (!v) {
        err_set(&err, ERR_USAGE, "this program is part of cove; run 'cove' instead");
        return report_error(&err, json);
    }
    bool has_word = argc > 1 && argv[1][0] != '-';
    if (v->words && (has_word || !v->words_are_optional)) {
        second = argc > 1 ? argv[1] : NULL;
        if (ctl_check_subcommand(v, second, &err) < 0)
            return report_error(&err, json);
        argc--;
        argv++;
    }
    int status = args_parse(v, argc, argv, &c.args, &err);
    if (status == 0)
        status = ctl_run_verb(&c, v, second, &err);
    client_free(c.client);
    ev_free(c.ev);
    args_done(&c.args);
    if (c.signal)
        return 128 + c.signal;
    return status < 0 ? report_error(&err, json) : status;
}
