/* The client of src/remote/mcp under the conformance suite of the protocol, which starts it with
 * the address of a server as its last argument and names the scenario in MCP_CONFORMANCE_SCENARIO.
 *
 *     mcp-conformance-client URL
 *
 * Each scenario is a list of calls, one after the other, except where the scenario wants two at
 * once. Exit status 0: every call had an answer; 1: one had not, and the reason is on standard
 * error. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/mcp_client.h"
#include "remote/mcp/mcp_elicit.h"

#include <signal.h>
#include <stdio.h>

struct step {
    struct step *next;
    enum mcp_client_call_kind method;
    char *name;
    json_t *arguments;
    bool with_next; /* starts the next step too */
};

static struct ev *loop;
static struct mcp_client *client;
static struct step *first, *last;
static const char *scenario;
static unsigned running;
static int status;

static void run_steps(void);

static void add_step(enum mcp_client_call_kind method, const char *name, json_t *arguments)
{
    struct step *s = mem_new(struct step);

    *s = (struct step){ .method = method, .name = name ? str_dup(name) : NULL, .arguments = arguments };
    if (last)
        last->next = s;
    else
        first = s;
    last = s;
}

static void fail(const struct err *err)
{
    fprintf(stderr, "%s: %s\n", scenario, err->msg);
    status = 1;
}

/* --- what the answers lead to --- */

/* The scenario sends its schema to be returned unchanged. */
static void add_schema_echo(const json_t *result)
{
    const json_t *tool;
    json_t *schema = NULL;
    size_t i;

    json_array_foreach(json_object_get(result, "tools"), i,
                       tool) if (str_eq(json_string_value(json_object_get(tool, "name")), "json_schema_2020_12_tool"))
        schema = json_object_get(tool, "inputSchema");
    add_step(MCP_CALL_TOOL, "json_schema_echo", json_pack("{s:O?}", "schema", schema));
}

static void add_calls_of_list(const json_t *result)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(json_object_get(result, "tools"), i, tool)
        add_step(MCP_CALL_TOOL, json_string_value(json_object_get(tool, "name")),
                 json_pack("{s:s, s:s}", "region", "eu", "value", "x"));
}

static void on_answer(void *arg, const json_t *result, const struct err *err)
{
    struct step *s = arg;

    running--;
    if (err)
        fail(err);
    else if (s->method == MCP_LIST_TOOLS && str_eq(scenario, "json-schema-2020-12-preservation"))
        add_schema_echo(result);
    else if (s->method == MCP_LIST_TOOLS && str_eq(scenario, "http-invalid-tool-headers"))
        add_calls_of_list(result);
    free(s->name);
    json_decref(s->arguments);
    free(s);
    run_steps();
}

static void on_progress(void *arg UNUSED, const struct mcp_progress *p)
{
    printf("progress %g of %g %s\n", p->progress, p->total, p->message);
}

static void run_steps(void)
{
    const struct mcp_client_call_ops ops = { on_progress, on_answer };

    while (first && (running == 0 || first->with_next)) {
        struct step *s = first;
        const struct mcp_client_call_spec spec = {
            .method = s->method, .name = s->name, .arguments = s->arguments, .timeout_ms = 20000
        };
        struct mcp_client_call *call;
        struct err err = { 0 };

        first = s->next;
        if (!first)
            last = NULL;
        if (mcp_client_call_start(client, &spec, &ops, s, &call, &err) < 0) {
            fail(&err);
            break;
        }
        running++;
    }
    if (running == 0)
        ev_stop(loop);
}

/* --- scenarios --- */

static void add_custom_calls(void)
{
    const char *text = getenv("MCP_CONFORMANCE_CONTEXT");
    json_t *context = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *call;
    size_t i;

    json_array_foreach(json_object_get(context, "toolCalls"), i, call)
        add_step(MCP_CALL_TOOL, json_string_value(json_object_get(call, "name")),
                 json_incref(json_object_get(call, "arguments")));
    json_decref(context);
}

static void add_header_calls(void)
{
    add_step(MCP_CALL_TOOL, "test_headers", NULL);
    add_step(MCP_LIST_RESOURCES, NULL, NULL);
    add_step(MCP_READ_RESOURCE, "file:///path/to/file%20name.txt", NULL);
    add_step(MCP_LIST_PROMPTS, NULL, NULL);
    add_step(MCP_GET_PROMPT, "test_prompt", NULL);
}

static void add_scenario(void)
{
    add_step(MCP_LIST_TOOLS, NULL, NULL);
    if (str_eq(scenario, "tools_call")) {
        add_step(MCP_CALL_TOOL, "add_numbers", json_pack("{s:i, s:i}", "a", 5, "b", 3));
    } else if (str_eq(scenario, "elicitation-sep1034-client-defaults")) {
        add_step(MCP_CALL_TOOL, "test_client_elicitation_defaults", NULL);
    } else if (str_eq(scenario, "sse-retry")) {
        add_step(MCP_CALL_TOOL, "test_reconnection", NULL);
    } else if (str_eq(scenario, "http-standard-headers")) {
        add_header_calls();
    } else if (str_eq(scenario, "http-custom-headers")) {
        add_custom_calls();
    } else if (str_eq(scenario, "sep-2322-client-request-state")) {
        add_step(MCP_CALL_TOOL, "test_mrtr_echo_state", NULL);
        add_step(MCP_CALL_TOOL, "test_mrtr_unrelated", NULL);
        last->with_next = true;
        add_step(MCP_CALL_TOOL, "test_mrtr_no_state", NULL);
        add_step(MCP_CALL_TOOL, "test_mrtr_no_result_type", NULL);
    }
}

static void on_question(void *arg UNUSED, struct mcp_question *q)
{
    json_t *content = NULL;

    if (!str_eq(mcp_question_method(q), "elicitation/create") ||
        mcp_elicit_defaults(mcp_question_params(q), &content, NULL) < 0)
        mcp_question_refuse(q);
    else
        mcp_question_answer(q, json_pack("{s:s, s:o}", "action", "accept", "content", content));
}

static void on_ready(void *arg UNUSED, const struct err *err)
{
    if (err) {
        fail(err);
        ev_stop(loop);
        return;
    }
    printf("%s %s\n", mcp_client_era(client) == MCP_ERA_MODERN ? "modern" : "legacy", mcp_client_version(client));
}

int main(int argc, char **argv)
{
    const struct mcp_client_spec spec = { .url = argc > 1 ? argv[argc - 1] : NULL,
                                          .answers_elicitation = true,
                                          .answers_sampling = true,
                                          .answers_roots = true };
    const struct mcp_client_ops ops = { .on_ready = on_ready, .on_question = on_question };
    struct err err = { 0 };

    scenario = getenv("MCP_CONFORMANCE_SCENARIO");
    if (argc < 2 || !scenario) {
        fprintf(stderr, "usage: MCP_CONFORMANCE_SCENARIO=NAME mcp-conformance-client URL\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    if (ev_new(&loop, &err) < 0 || mcp_client_new(loop, &spec, &ops, NULL, &client, &err) < 0) {
        fail(&err);
        return 1;
    }
    add_scenario();
    run_steps();
    ev_run(loop);
    mcp_client_free(client);
    ev_free(loop);
    return status;
}
