/* cove __complete VERB [WORD...] CURRENT: prints the names that may stand for CURRENT, one per
 * line, for the completion scripts. It asks the server, waits for it a short time only, and prints
 * nothing on failure: a shell must not hang or show errors while a user types. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"

#include <stdio.h>

#define PATIENCE_MS 700

enum ctl_complete_kind {
    CTL_COMPLETE_NOTHING,
    CTL_COMPLETE_SANDBOX,     /* live ones of the server */
    CTL_COMPLETE_ANY_SANDBOX, /* and kept ones */
    CTL_COMPLETE_CONTEXT,     /* of the sandbox that is the first argument */
    CTL_COMPLETE_EXECUTION,   /* the same */
    CTL_COMPLETE_TEMPLATE,
    CTL_COMPLETE_SCRIPT,
    CTL_COMPLETE_SECRET,
    CTL_COMPLETE_TOOL,
    CTL_COMPLETE_POOL,
    CTL_COMPLETE_KEY,
    CTL_COMPLETE_TENANT,
    CTL_COMPLETE_USER,
    CTL_COMPLETE_ROLE,
    CTL_COMPLETE_MCP_SESSION, /* after ls, show or rm */
};

/* Arguments by position, after the subcommand if the verb has some. The last kind repeats if `more`
 * is set. */
static const struct {
    enum verb_id verb;
    const char *subcommands; /* separated by blanks; NULL: all, or none */
    enum ctl_complete_kind first, second;
    bool more;
} complete_arguments[] = {
    { VERB_RM, NULL, CTL_COMPLETE_ANY_SANDBOX, CTL_COMPLETE_ANY_SANDBOX, true },
    { VERB_SHELL, NULL, CTL_COMPLETE_ANY_SANDBOX, 0, false },
    { VERB_EXEC, NULL, CTL_COMPLETE_ANY_SANDBOX, 0, false },
    { VERB_CP, NULL, CTL_COMPLETE_ANY_SANDBOX, CTL_COMPLETE_ANY_SANDBOX, false },
    { VERB_FILES, NULL, CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_SANDBOX, "info rm pause resume set update connections", CTL_COMPLETE_SANDBOX, CTL_COMPLETE_SANDBOX, true },
    { VERB_CONTEXT, "create ls", CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_CONTEXT, NULL, CTL_COMPLETE_SANDBOX, CTL_COMPLETE_CONTEXT, false },
    { VERB_ATTACH, NULL, CTL_COMPLETE_SANDBOX, CTL_COMPLETE_EXECUTION, false },
    { VERB_LOGS, NULL, CTL_COMPLETE_SANDBOX, CTL_COMPLETE_EXECUTION, false },
    { VERB_WATCH, NULL, CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_EVENTS, NULL, CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_PS, NULL, CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_USAGE, NULL, CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_TOKEN, "create url", CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_TOOL, "show", CTL_COMPLETE_TOOL, 0, false },
    { VERB_TOOL, "call", CTL_COMPLETE_SANDBOX, CTL_COMPLETE_TOOL, false },
    { VERB_TEMPLATE, "show set rm", CTL_COMPLETE_TEMPLATE, 0, false },
    { VERB_SCRIPT, "show rm", CTL_COMPLETE_SCRIPT, CTL_COMPLETE_SCRIPT, true },
    { VERB_SECRET, "set show rm", CTL_COMPLETE_SECRET, CTL_COMPLETE_SECRET, true },
    { VERB_POOL, "info set rm", CTL_COMPLETE_POOL, 0, false },
    { VERB_KEY, "revoke rotate", CTL_COMPLETE_KEY, 0, false },
    { VERB_TENANT, "info set rm", CTL_COMPLETE_TENANT, 0, false },
    { VERB_BUDGET, NULL, CTL_COMPLETE_TENANT, 0, false },
    { VERB_USER, "info set rm", CTL_COMPLETE_USER, 0, false },
    { VERB_ROLE, "show rm", CTL_COMPLETE_ROLE, 0, false },
    { VERB_POLICY, "why", CTL_COMPLETE_SANDBOX, 0, false },
    { VERB_MCP, "sessions", 0, CTL_COMPLETE_MCP_SESSION, false },
};

/* Values of flags. */
static const struct {
    int option;
    enum ctl_complete_kind kind;
} complete_values[] = { { OPT_TEMPLATE, CTL_COMPLETE_TEMPLATE },
                        { OPT_IN_SANDBOX, CTL_COMPLETE_SANDBOX },
                        { OPT_TENANT, CTL_COMPLETE_TENANT },
                        { OPT_ROLE, CTL_COMPLETE_ROLE },
                        { OPT_OF_USER, CTL_COMPLETE_USER } };

static bool ctl_complete_has_word(const char *list, const char *word)
{
    for (size_t n; *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        if (strlen(word) == n && memcmp(list, word, n) == 0)
            return true;
    }
    return false;
}

struct ctl_complete_line {
    const struct cli_verb *verb;
    const char *subcommand; /* NULL: none */
    const char *sandbox;    /* the first argument; NULL: none */
    size_t arguments;       /* before the current word */
    int option;             /* the current word is its value; OPT_NONE: it is an argument */
};

static const struct cli_option *ctl_complete_option(const struct cli_verb *v, const char *word)
{
    return word[1] == '-' ? cli_option_find(v, word + 2, strlen(word + 2))
                          : cli_option_letter(v, word[strlen(word) - 1]);
}

/* words[n - 1] is the current one. */
static void ctl_complete_parse(struct ctl_complete_line *l, char **words, int n)
{
    for (int i = 0; i < n - 1; i++) {
        const struct cli_option *o = words[i][0] == '-' && words[i][1] ? ctl_complete_option(l->verb, words[i]) : NULL;

        if (words[i][0] == '-' && words[i][1]) {
            bool apart = o && o->arg && !cli_arg_optional(o);

            if (apart && i + 1 == n - 1)
                l->option = o->id;
            i += apart;
        } else if (l->verb->words && !l->subcommand) {
            l->subcommand = words[i];
        } else {
            if (l->arguments++ == 0)
                l->sandbox = words[i];
        }
    }
}

static enum ctl_complete_kind ctl_complete_choose(const struct ctl_complete_line *l)
{
    for (size_t i = 0; l->option && i < ARRAY_LEN(complete_values); i++)
        if (complete_values[i].option == l->option)
            return complete_values[i].kind;
    for (size_t i = 0; !l->option && i < ARRAY_LEN(complete_arguments); i++)
        if (complete_arguments[i].verb == l->verb->id &&
            (!complete_arguments[i].subcommands ||
             (l->subcommand && ctl_complete_has_word(complete_arguments[i].subcommands, l->subcommand))))
            return l->arguments == 0                                 ? complete_arguments[i].first
                   : l->arguments == 1 || complete_arguments[i].more ? complete_arguments[i].second
                                                                     : CTL_COMPLETE_NOTHING;
    return CTL_COMPLETE_NOTHING;
}

/* A shell inserts a word as it is, and other users choose the names of a server: a word with a
 * character that a shell interprets could run a command of theirs. */
static bool ctl_complete_is_safe(const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@+:/";

    return *word && *word != '-' && !word[strspn(word, safe)];
}

struct ctl_complete_print {
    const char *key;   /* field of an item */
    const char *after; /* printed after it */
};

static void ctl_complete_print_word(const struct ctl_complete_print *p, const char *word)
{
    if (ctl_complete_is_safe(word))
        ctl_printf("%s%s", word, p->after);
}

static void ctl_complete_print_item(void *arg, const json_t *item)
{
    const struct ctl_complete_print *p = arg;
    const char *text = ctl_field_text(item, p->key);

    if (str_eq(ctl_field_text(item, "state"), "ended"))
        return;
    ctl_complete_print_word(p, ctl_complete_is_safe(text) ? text : ctl_field_text(item, "id"));
    if (str_eq(p->key, "id"))
        ctl_complete_print_word(p, ctl_field_text(item, "name"));
}

/* Contexts of a sandbox and tools are few and have no pages. */
static void ctl_complete_print_whole(struct ctl *c, const char *path, struct ctl_complete_print *p)
{
    AUTO_JSON *answer = NULL;
    struct err err = { 0 };
    size_t i;
    json_t *item;

    if (client_json(c->client, "GET", path, NULL, &answer, &err) < 0)
        return;
    json_array_foreach(json_object_get(answer, "items"), i, item) ctl_complete_print_item(p, item);
}

static void ctl_complete_print_kept(void *arg, const char *id, uint64_t since UNUSED)
{
    ctl_complete_print_word(arg, id);
}

static void ctl_complete_print_kind(struct ctl *c, const struct ctl_complete_line *l, enum ctl_complete_kind kind)
{
    static const struct {
        const char *path, *key;
    } sources[] = {
        [CTL_COMPLETE_SANDBOX] = { "/v1/sandboxes", "id" },
        [CTL_COMPLETE_ANY_SANDBOX] = { "/v1/sandboxes", "id" },
        [CTL_COMPLETE_CONTEXT] = { "/v1/sandboxes/%s/contexts", "id" },
        [CTL_COMPLETE_EXECUTION] = { "/v1/sandboxes/%s/executions", "id" },
        [CTL_COMPLETE_TEMPLATE] = { "/v1/templates", "name" },
        [CTL_COMPLETE_SCRIPT] = { "/v1/scripts", "id" },
        [CTL_COMPLETE_SECRET] = { "/v1/secrets", "name" },
        [CTL_COMPLETE_TOOL] = { "/v1/tools", "name" },
        [CTL_COMPLETE_POOL] = { "/v1/pools", "name" },
        [CTL_COMPLETE_KEY] = { "/v1/keys", "name" },
        [CTL_COMPLETE_TENANT] = { "/v1/tenants", "name" },
        [CTL_COMPLETE_USER] = { "/v1/users", "name" },
        [CTL_COMPLETE_ROLE] = { "/v1/roles", "name" },
        [CTL_COMPLETE_MCP_SESSION] = { "/v1/mcp/sessions", "id" },
    };
    struct ctl_complete_print p = { sources[kind].key, l->verb->id == VERB_CP || l->verb->id == VERB_FILES ? ":" : "" };
    auto_free char *sandbox = NULL;
    struct err err = { 0 };

    if (kind == CTL_COMPLETE_ANY_SANDBOX)
        ctl_kept_list(c, ctl_complete_print_kept, &p);
    if (!c->client || !sources[kind].path)
        return;
    if (strchr(sources[kind].path, '%') && ctl_resolve_sandbox(c, l->sandbox, &sandbox, &err) < 0)
        return;
    auto_free char *path = ctl_api_path(sources[kind].path, sandbox ? sandbox : "");
    if (kind == CTL_COMPLETE_MCP_SESSION || kind == CTL_COMPLETE_CONTEXT || kind == CTL_COMPLETE_TOOL)
        ctl_complete_print_whole(c, path, &p);
    else
        (void)ctl_for_each_item(c, path, ctl_complete_print_item, &p, &err);
}

int ctl_complete(struct ctl *c, int argc, char **argv)
{
    struct ctl_complete_line l = { .verb = argc > 1 ? cli_verb_find(argv[1]) : NULL };
    struct client_settings set = { 0 };
    struct err err = { 0 };

    if (!l.verb || argc < 3)
        return 0;
    ctl_complete_parse(&l, argv + 2, argc - 2);
    enum ctl_complete_kind kind = ctl_complete_choose(&l);
    if (kind == CTL_COMPLETE_NOTHING || ev_new(&c->ev, &err) < 0)
        return 0;
    if (client_new(c->ev, &set, &c->client, &err) == 0)
        client_set_patience(c->client, PATIENCE_MS);
    ctl_complete_print_kind(c, &l, kind);
    return 0;
}
