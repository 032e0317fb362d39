/* cove mcp tools, call and read: the tools and resources of MCP servers, for people and scripts.
 *
 * A server is an address, or a program, which runs in a sandbox: `cove run` is its parent, with
 * our pipes as its input and output. Several servers come from a file in the form of other MCP
 * clients. All servers start at once, and one that fails does not keep the others from
 * answering. */
#include "client/ctl/ctl_internal.h"
#include "client/ctl/mcp_client.h"
#include "client/ctl/mcp_print.h"
#include "client/ctl/mcp_process.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/json_input.h"
#include "client/cli/report.h"
#include "remote/mcp/mcp_config.h"
#include "remote/mcp/mcp_elicit.h"
#include "remote/mcp/mcp_servers.h"
#include "remote/mcp/mcp_tool.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define ONE_SERVER "server" /* name of a server that the command line gives */
#define END_WAIT_MS 500u
#define STOP_GRACE_MS 1000u
#define WORDS_MAX 400u

struct ctl_mcp_server {
    const char *name;
    bool sandboxed;
    struct mcp_process *process; /* NULL: an address */
};

struct ctl_mcp {
    struct ctl *c;
    struct mcp_servers *set;
    struct mcp_config config;
    struct ctl_mcp_server servers[MCP_SERVERS_MAX];
    size_t n;
    uint32_t timeout_ms;
    const char *elicit; /* "defaults" or "decline"; NULL: questions are refused */
    bool is_done;
    json_t *tools;  /* of a listing */
    json_t *result; /* of a call */
    struct err err;
};

static const char *ctl_mcp_option(const struct ctl *c, int id)
{
    const struct arg *a = args_find(&c->args, id);

    return a ? a->value : NULL;
}

/* --- programs --- */

struct ctl_mcp_words {
    const char *list[WORDS_MAX + 1];
    size_t n;
};

static void ctl_mcp_add_word(struct ctl_mcp_words *w, const char *word)
{
    if (w->n < WORDS_MAX)
        w->list[w->n++] = word;
}

/* `cove run` with the flags that the user gave for the sandbox. The variables of the server are
 * in the environment of `cove run`, so their values stay out of the list of processes. */
static void ctl_mcp_sandbox_words(const struct ctl *c, const char *cove, const char *const *env, struct buf *names,
                                  struct ctl_mcp_words *w)
{
    static const char *const fixed[] = { "run", "--timeout", "720h", "--max-output", "1T" };
    static const struct {
        int id;
        const char *flag;
    } passed[] = { { OPT_WORKSPACE, "--workspace" }, { OPT_BIND_RO, "--bind-ro" }, { OPT_ENV, "--env" } };

    ctl_mcp_add_word(w, cove);
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        ctl_mcp_add_word(w, fixed[i]);
    for (size_t i = 0; i < c->args.n; i++)
        for (size_t k = 0; k < ARRAY_LEN(passed); k++)
            if (c->args.items[i].opt->id == passed[k].id) {
                ctl_mcp_add_word(w, passed[k].flag);
                ctl_mcp_add_word(w, c->args.items[i].value);
            }
    for (const char *const *line = env; line && *line; line++)
        buf_add(names, *line, strcspn(*line, "=")), buf_add(names, "", 1);
    const char *name = names->data;
    for (const char *const *line = env; line && *line; line++, name += strlen(name) + 1) {
        ctl_mcp_add_word(w, "--env");
        ctl_mcp_add_word(w, name);
    }
    ctl_mcp_add_word(w, "--");
}

/* --env of a program without a sandbox, which has our environment already. */
static void ctl_mcp_own_variables(const struct ctl *c, struct ctl_mcp_words *w)
{
    for (size_t i = 0; i < c->args.n; i++)
        if (c->args.items[i].opt->id == OPT_ENV && strchr(c->args.items[i].value, '='))
            ctl_mcp_add_word(w, c->args.items[i].value);
}

static int ctl_mcp_start_program(struct ctl_mcp *m, const char *name, const char *const *argv, const char *const *env,
                                 const char *cwd, struct mcp_client_spec *spec, struct err *err)
{
    struct ctl_mcp_server *server = &m->servers[m->n];
    auto_free char *cove = ctl_mcp_command();
    struct ctl_mcp_words words = { 0 }, variables = { 0 };
    auto_buf names = { 0 };

    server->name = name;
    server->sandboxed = !args_find(&m->c->args, OPT_UNSANDBOXED);
    for (const char *const *line = env; line && *line; line++)
        ctl_mcp_add_word(&variables, *line);
    if (server->sandboxed)
        ctl_mcp_sandbox_words(m->c, cove, env, &names, &words);
    else
        ctl_mcp_own_variables(m->c, &variables);
    for (const char *const *word = argv; *word; word++)
        ctl_mcp_add_word(&words, *word);
    if (words.n == WORDS_MAX)
        return err_set(err, ERR_INVALID, "server '%s': its command has more than %u words", name, WORDS_MAX);
    const struct mcp_process_spec process = { .argv = words.list, .env = variables.list, .cwd = cwd };
    if (mcp_process_start(m->c->ev, &process, &server->process, &spec->in_fd, &spec->out_fd, err) < 0)
        return err_wrap(err, "server '%s'", name);
    m->n++;
    return 0;
}

/* Why a server that closed its output has ended, as far as its process says. */
static void ctl_mcp_note_exit(const struct ctl_mcp *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct ctl_mcp_server *s = &m->servers[i];

        if (!str_eq(s->name, name) || !s->process)
            continue;
        int status = mcp_process_exit_status(s->process);
        const char *words = mcp_process_last_words(s->process);
        if (*words)
            fprintf(stderr, "%s\n", words);
        if (status >= 0)
            report_note("server '%s' exited with status %d", name, status);
        if (s->sandboxed && status != 0)
            report_note("server '%s' ran in a sandbox: without a network, and without files other than those of the "
                        "system; --bind-ro SRC:DST shows it a directory, and --unsandboxed runs it without a sandbox",
                        name);
    }
}

/* --- servers --- */

static void ctl_mcp_on_question(void *arg, const char *server, struct mcp_question *q)
{
    const struct ctl_mcp *m = arg;
    json_t *content = NULL;
    struct err err = { 0 };
    auto_free char *message = mcp_clean_text(ctl_field_text(mcp_question_params(q), "message"), 500);

    if (!m->c->quiet)
        report_note("server '%s' asks: %s", server, message);
    if (str_eq(m->elicit, "decline")) {
        mcp_question_answer(q, json_pack("{s:s}", "action", "decline"));
    } else if (mcp_elicit_defaults(mcp_question_params(q), &content, &err) == 0) {
        mcp_question_answer(q, json_pack("{s:s, s:o}", "action", "accept", "content", content));
    } else {
        report_note("the question was declined: %s", err.msg);
        mcp_question_answer(q, json_pack("{s:s}", "action", "decline"));
    }
}

static int ctl_mcp_add_server(struct ctl_mcp *m, const struct mcp_config_server *s, struct err *err)
{
    struct mcp_client_spec spec = { .url = s->url,
                                    .headers = (const char *const *)s->headers,
                                    .cacert = ctl_mcp_option(m->c, OPT_CACERT),
                                    .open_ms = m->timeout_ms,
                                    .answers_elicitation = m->elicit != NULL };

    if (!s->url && ctl_mcp_start_program(m, s->name, (const char *const *)s->command, (const char *const *)s->env,
                                         s->cwd, &spec, err) < 0)
        return -1;
    return mcp_servers_add(m->set, s->name, &spec, err);
}

static int ctl_mcp_add_file(struct ctl_mcp *m, const char *path, struct err *err)
{
    const char *only = ctl_mcp_option(m->c, OPT_SERVER);
    auto_buf text = { 0 };

    if (ctl_read_path(path, MCP_CONFIG_BYTES_MAX, &text, err) < 0)
        return -1;
    if (mcp_config_parse(text.data ? text.data : "", text.len, getenv, &m->config, err) < 0)
        return err_wrap(err, "%.100s", path);
    for (size_t i = 0; i < m->config.n; i++)
        if ((!only || str_eq(only, m->config.servers[i].name)) && ctl_mcp_add_server(m, &m->config.servers[i], err) < 0)
            return -1;
    if (mcp_servers_count(m->set) == 0)
        return err_set(err, ERR_MISSING, "%.100s: it has no server%s%.40s", path, only ? " named " : "",
                       only ? only : "");
    return 0;
}

static int ctl_mcp_add_one(struct ctl_mcp *m, const char *url, char **command, struct err *err)
{
    const char *headers[MCP_CONFIG_WORDS_MAX + 1] = { 0 };
    struct mcp_config_server one = { .name = (char *)ONE_SERVER, .url = (char *)url, .headers = (char **)headers };
    size_t n = 0;

    for (size_t i = 0; i < m->c->args.n && n < MCP_CONFIG_WORDS_MAX; i++)
        if (m->c->args.items[i].opt->id == OPT_HEADER)
            headers[n++] = m->c->args.items[i].value;
    one.command = command;
    return ctl_mcp_add_server(m, &one, err);
}

/* The words after "--" are the program; the words before it belong to the verb. */
static int ctl_mcp_open(struct ctl_mcp *m, struct err *err)
{
    struct ctl *c = m->c;
    const char *url = ctl_mcp_option(c, OPT_SERVER_URL), *file = ctl_mcp_option(c, OPT_CONFIG);
    char **command = c->args.after_dashes ? c->args.rest + c->args.before_dashes : NULL;
    bool has_command = command && *command;

    if ((url != NULL) + (file != NULL) + has_command > 1)
        return err_set(err, ERR_USAGE, "give one of --server-url, --config and a command after --, not several");
    if (!url && !file && !has_command)
        file = getenv("COVE_MCP_CONFIG");
    if (file && *file)
        return ctl_mcp_add_file(m, file, err);
    if (!url && !has_command)
        return err_set(err, ERR_USAGE, "no MCP server is named; give --server-url URL, --config FILE, or -- COMMAND");
    return ctl_mcp_add_one(m, url, command, err);
}

static int ctl_mcp_wait(struct ctl_mcp *m, struct err *err)
{
    while (!m->is_done && !m->c->signal)
        ev_turn(m->c->ev, 200);
    return ctl_check_interrupt(m->c, err);
}

/* --- the list of tools --- */

static void ctl_mcp_on_listed(void *arg, const json_t *result)
{
    struct ctl_mcp *m = arg;

    m->is_done = true;
    m->tools = json_incref((json_t *)result);
}

static int ctl_mcp_list(struct ctl_mcp *m, struct err *err)
{
    m->is_done = false;
    mcp_servers_list_tools(m->set, m->timeout_ms, ctl_mcp_on_listed, m);
    return ctl_mcp_wait(m, err);
}

/* Reports the servers that did not answer. Returns their number, and the first error. */
static size_t ctl_mcp_report_failures(const struct ctl_mcp *m, struct err *ret)
{
    const json_t *server;
    size_t i, failed = 0;

    json_array_foreach(json_object_get(m->tools, "servers"), i, server)
    {
        const json_t *error = json_object_get(server, "error");
        const char *name = ctl_field_text(server, "name");

        if (!error)
            continue;
        if (failed++ == 0)
            err_set(ret, err_by_code(ctl_field_text(error, "code")), "server '%s': %s", name,
                    ctl_field_text(error, "message"));
        else
            report_note("server '%s': %s", name, ctl_field_text(error, "message"));
        ctl_mcp_note_exit(m, name);
    }
    return failed;
}

static void ctl_mcp_print_tools(const struct ctl_mcp *m)
{
    struct ctl_table table = { 0 };
    const json_t *tool;
    size_t i;

    ctl_table_row(&table, "tool", "description");
    json_array_foreach(json_object_get(m->tools, "tools"), i, tool)
    {
        const char *text = ctl_field_text(tool, "description");
        auto_free char *line = str_dup_n(text, min_size(strcspn(text, "\n"), 100));

        ctl_table_row(&table, ctl_field_text(tool, "name"), *line ? line : "-");
    }
    (void)ctl_table_print(&table);
    json_array_foreach(json_object_get(m->tools, "dropped"), i, tool)
        report_note("server '%s': tool '%s' is not usable: %s", ctl_field_text(tool, "server"),
                    ctl_field_text(tool, "name"), ctl_field_text(tool, "reason"));
}

static int ctl_mcp_tools(struct ctl_mcp *m, struct err *err)
{
    if (m->c->args.before_dashes != 0)
        return err_set(err, ERR_USAGE, "usage: cove mcp tools [FLAGS] [-- COMMAND]");
    if (ctl_mcp_open(m, err) < 0 || ctl_mcp_list(m, err) < 0)
        return -1;
    size_t failed = ctl_mcp_report_failures(m, err);
    if (failed > 0 && failed == mcp_servers_count(m->set))
        return -1;
    if (m->c->json)
        ctl_print_json(m->tools);
    else
        ctl_mcp_print_tools(m);
    if (failed == 0)
        return 0;
    report_note("%s", err->msg); /* an error would be a second JSON object */
    return err_info(err->id)->exit;
}

/* --- results --- */

static int ctl_mcp_print_result(struct ctl_mcp *m, struct err *err)
{
    const json_t *content = json_object_get(m->result, "content");
    const json_t *structured = json_object_get(m->result, "structuredContent");
    int status = json_is_true(json_object_get(m->result, "isError")) ? 1 : 0;

    if (m->c->json) {
        ctl_print_json(m->result);
        return status;
    }
    if (mcp_print_blocks(content, ctl_mcp_option(m->c, OPT_SAVE), m->c->quiet, err) < 0)
        return -1;
    if (json_array_size(content) == 0 && structured) {
        auto_free char *text = ctl_json_text(structured);
        ctl_printf("%s", text);
    }
    return status;
}

/* --- calls --- */

static void ctl_mcp_on_progress(void *arg, const struct mcp_progress *p)
{
    const struct ctl_mcp *m = arg;

    if (m->c->quiet || !isatty(STDERR_FILENO))
        return;
    if (p->total > 0)
        report_note("progress %g of %g %s", p->progress, p->total, p->message);
    else
        report_note("progress %g %s", p->progress, p->message);
}

static void ctl_mcp_on_done(void *arg, const json_t *result, const struct err *err)
{
    struct ctl_mcp *m = arg;

    m->is_done = true;
    m->result = result ? json_incref((json_t *)result) : NULL;
    if (err)
        m->err = *err;
}

static int ctl_mcp_request(struct ctl_mcp *m, struct mcp_client *client, const struct mcp_client_call_spec *spec,
                           struct err *err)
{
    static const struct mcp_client_call_ops ops = { ctl_mcp_on_progress, ctl_mcp_on_done };
    struct mcp_client_call *call = NULL;

    m->is_done = false;
    if (mcp_client_call_start(client, spec, &ops, m, &call, err) < 0)
        return -1;
    if (ctl_mcp_wait(m, err) < 0) {
        mcp_client_call_cancel(call);
        return -1;
    }
    if (m->err.id == ERR_NONE)
        return 0;
    *err = m->err;
    return -1;
}

/* NAME=VALUE: text if the schema of the tool says so, else JSON, or text if it is not JSON. */
static int ctl_mcp_add_argument(json_t *arguments, const json_t *schema, const char *pair, struct err *err)
{
    const char *eq = strchr(pair, '=');

    if (!eq || eq == pair)
        return err_set(err, ERR_USAGE, "--arg '%.60s': must be NAME=VALUE", pair);
    auto_free char *name = str_dup_n(pair, (size_t)(eq - pair));
    const json_t *property = json_object_get(json_object_get(schema, "properties"), name);
    json_t *value = NULL;
    if (!str_eq(ctl_field_text(property, "type"), "string"))
        value = json_loads(eq + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!value)
        value = json_string(eq + 1);
    if (!value || json_object_set_new(arguments, name, value) < 0)
        return err_set(err, ERR_USAGE, "--arg '%.60s': it is not UTF-8", pair);
    return 0;
}

static int ctl_mcp_arguments_of(const struct ctl *c, const json_t *schema, json_t **ret, struct err *err)
{
    const char *text = c->args.before_dashes > 1 ? c->args.rest[1] : NULL;
    AUTO_JSON *arguments = NULL;

    if (!text)
        arguments = json_object();
    else if (json_input_parse(text, strlen(text), &arguments, err) < 0)
        return err_wrap(err, "the arguments '%.40s'", text);
    for (size_t i = 0; i < c->args.n; i++)
        if (c->args.items[i].opt->id == OPT_ARG &&
            ctl_mcp_add_argument(arguments, schema, c->args.items[i].value, err) < 0)
            return -1;
    *ret = take_ptr(&arguments);
    return 0;
}

static const json_t *ctl_mcp_find_tool(const struct ctl_mcp *m, const char *server, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(json_object_get(m->tools, "tools"), i,
                       tool) if (str_eq(ctl_field_text(tool, "tool"), name) &&
                                 str_eq(ctl_field_text(tool, "server"), server)) return tool;
    return NULL;
}

static int ctl_mcp_call(struct ctl_mcp *m, struct err *err)
{
    const struct args *a = &m->c->args;
    AUTO_JSON *arguments = NULL;
    struct mcp_client *client;
    const char *name;

    if (a->before_dashes < 1 || a->before_dashes > 2)
        return err_set(err, ERR_USAGE, "usage: cove mcp call [FLAGS] TOOL [JSON] [-- COMMAND]");
    if (ctl_mcp_open(m, err) < 0 || ctl_mcp_list(m, err) < 0 ||
        mcp_servers_resolve(m->set, a->rest[0], &client, &name, err) < 0)
        return -1;
    const json_t *server, *tool = NULL;
    size_t i;
    json_array_foreach(json_object_get(m->tools, "servers"), i, server)
    {
        const char *server_name = ctl_field_text(server, "name");

        if (mcp_servers_find(m->set, server_name) != client)
            continue;
        tool = ctl_mcp_find_tool(m, server_name, name);
        if (json_object_get(server, "error")) {
            ctl_mcp_report_failures(m, err);
            return -1;
        }
    }
    if (ctl_mcp_arguments_of(m->c, json_object_get(tool, "inputSchema"), &arguments, err) < 0)
        return -1;
    const struct mcp_client_call_spec spec = {
        .method = MCP_CALL_TOOL, .name = name, .arguments = arguments, .timeout_ms = m->timeout_ms
    };
    if (ctl_mcp_request(m, client, &spec, err) == 0)
        return ctl_mcp_print_result(m, err);
    if (err->id == ERR_MCP_ENDED)
        for (i = 0; i < m->n; i++)
            if (mcp_servers_find(m->set, m->servers[i].name) == client)
                ctl_mcp_note_exit(m, m->servers[i].name);
    return -1;
}

/* --- resources --- */

static int ctl_mcp_print_resources(const struct ctl_mcp *m, struct err *err)
{
    if (m->c->json)
        return ctl_print_json(m->result);
    if (json_object_get(m->result, "resources"))
        return mcp_print_resource_list(json_object_get(m->result, "resources"));
    return mcp_print_contents(json_object_get(m->result, "contents"), ctl_mcp_option(m->c, OPT_SAVE), m->c->quiet, err);
}

static int ctl_mcp_read(struct ctl_mcp *m, struct err *err)
{
    const struct args *a = &m->c->args;
    const char *uri = a->before_dashes == 1 ? a->rest[0] : NULL;
    struct mcp_client *client;
    const char *rest;

    if (a->before_dashes > 1)
        return err_set(err, ERR_USAGE, "usage: cove mcp read [FLAGS] [URI] [-- COMMAND]");
    if (ctl_mcp_open(m, err) < 0)
        return -1;
    if (mcp_servers_count(m->set) > 1)
        return err_set(err, ERR_USAGE, "the file has several servers; choose one with --server NAME");
    const struct mcp_client_call_spec spec = { .method = uri ? MCP_READ_RESOURCE : MCP_LIST_RESOURCES,
                                               .name = uri,
                                               .timeout_ms = m->timeout_ms };
    if (mcp_servers_resolve(m->set, "", &client, &rest, err) < 0)
        return -1;
    if (ctl_mcp_request(m, client, &spec, err) == 0)
        return ctl_mcp_print_resources(m, err);
    if (err->id == ERR_MCP_ENDED && m->n > 0)
        ctl_mcp_note_exit(m, m->servers[0].name);
    return -1;
}

/* --- the verb --- */

int ctl_mcp_check_flags(const struct ctl *c, bool is_client, struct err *err)
{
    static const int client[] = { OPT_SERVER_URL, OPT_HEADER,       OPT_CONFIG, OPT_SERVER,
                                  OPT_ARG,        OPT_CALL_TIMEOUT, OPT_ELICIT, OPT_UNSANDBOXED,
                                  OPT_WORKSPACE,  OPT_BIND_RO,      OPT_ENV,    OPT_SAVE };
    static const int others[] = { OPT_LOCAL, OPT_IN_SANDBOX, OPT_TEMPLATE, OPT_ALLOW, OPT_DENY };
    const struct arg *a;

    if (is_client && args_find(&c->args, OPT_URL))
        return err_set(err, ERR_USAGE, "--url is the address of a cove server; write --server-url for an MCP server");
    for (size_t i = 0; is_client && i < ARRAY_LEN(others); i++)
        if ((a = args_find(&c->args, others[i])))
            return err_set(err, ERR_USAGE, "--%s is not a flag of 'cove mcp tools', 'call' and 'read'", a->opt->name);
    for (size_t i = 0; !is_client && i < ARRAY_LEN(client); i++)
        if ((a = args_find(&c->args, client[i])))
            return err_set(err, ERR_USAGE, "--%s is a flag of 'cove mcp tools', 'call' and 'read'", a->opt->name);
    return 0;
}

static int ctl_mcp_settings(struct ctl_mcp *m, struct err *err)
{
    const char *timeout = ctl_mcp_option(m->c, OPT_CALL_TIMEOUT);
    uint64_t ms = 60000;

    m->elicit = ctl_mcp_option(m->c, OPT_ELICIT);
    if (timeout && (!str_to_ms(timeout, &ms) || ms == 0 || ms > UINT32_MAX))
        return err_set(err, ERR_USAGE, "--timeout '%.40s': must be a time such as 30s or 5m", timeout);
    if (m->elicit && !str_eq(m->elicit, "defaults") && !str_eq(m->elicit, "decline"))
        return err_set(err, ERR_USAGE, "--elicit '%.40s': must be defaults or decline", m->elicit);
    m->timeout_ms = (uint32_t)ms;
    return 0;
}

/* Lets cancellations and ends of sessions leave, but does not wait for a slow server. */
static void ctl_mcp_end_sessions(const struct ctl_mcp *m)
{
    uint64_t end = clock_mono_ns() + END_WAIT_MS * NS_PER_MS;

    mcp_servers_end_sessions(m->set);
    while (mcp_servers_are_sending(m->set) && clock_mono_ns() < end)
        ev_turn(m->c->ev, 20);
}

int ctl_mcp_client(struct ctl *c, const char *what, struct err *err)
{
    static const struct mcp_servers_ops ops = { .on_question = ctl_mcp_on_question };
    struct ctl_mcp m = { .c = c };
    int status = -1;

    if (ctl_mcp_check_flags(c, true, err) < 0 || ctl_mcp_settings(&m, err) < 0 || ctl_catch_interrupt(c, err) < 0)
        return -1;
    m.set = mcp_servers_new(c->ev, &ops, &m);
    if (str_eq(what, "tools"))
        status = ctl_mcp_tools(&m, err);
    else if (str_eq(what, "call"))
        status = ctl_mcp_call(&m, err);
    else
        status = ctl_mcp_read(&m, err);
    ctl_mcp_end_sessions(&m);
    mcp_servers_free(m.set); /* closes the inputs of the programs, which asks them to exit */
    for (size_t i = 0; i < m.n; i++) {
        mcp_process_stop(m.servers[i].process, STOP_GRACE_MS);
        mcp_process_free(m.servers[i].process);
    }
    mcp_config_done(&m.config);
    json_decref(m.tools);
    json_decref(m.result);
    return status;
}
