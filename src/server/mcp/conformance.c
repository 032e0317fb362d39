/* The fixtures of the MCP conformance suite: tools, resources and prompts with the fixed names that
 * its scenarios call. They are off unless the setting mcp.conformance is on, touch no sandbox, and
 * pass through the same dispatcher as everything else. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "server/auth/mac.h"

#include <stdio.h>

#define FIXTURE_STEP_NS (50 * NS_PER_MS)
/* One red pixel, and 44 bytes of header without samples. */
#define FIXTURE_PNG "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
#define FIXTURE_WAV "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
#define NO_ARGUMENTS "{\"type\":\"object\",\"properties\":{}}"
#define TEXT(text) "{\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"
#define IMAGE "{\"type\":\"image\",\"data\":\"" FIXTURE_PNG "\",\"mimeType\":\"image/png\"}"

struct mcp_fixtures {
    struct mac_key key; /* signs the state that a client carries between two requests */
};

struct fixture_tool {
    const char *name, *input_schema;
    const char *result; /* fixed; NULL: fn answers */
    void (*fn)(struct mcp_server_call *c, const json_t *arguments);
};

struct mcp_fixtures *mcp_fixtures_new(void)
{
    struct mcp_fixtures *f = mem_new(struct mcp_fixtures);

    mac_random_bytes(f->key.key);
    return f;
}

void mcp_fixtures_free(struct mcp_fixtures *f)
{
    free(f);
}

/* --- tools that send notifications --- */

struct fixture_steps {
    unsigned step;
    void (*fn)(struct mcp_server_call *c, unsigned step);
};

static void fixture_steps_cancel(struct mcp_server_call *c)
{
    free(take_ptr(&c->work));
}

static void fixture_on_step(void *arg)
{
    struct mcp_server_call *c = arg;
    struct fixture_steps *s = c->work;

    s->fn(c, s->step++);
}

static void fixture_next_step(struct mcp_server_call *c)
{
    ev_timer_set(c->mcp->settings.ev, &c->timer, ev_now(c->mcp->settings.ev) + FIXTURE_STEP_NS, fixture_on_step, c);
}

static void fixture_start_steps(struct mcp_server_call *c, void (*fn)(struct mcp_server_call *c, unsigned step))
{
    struct fixture_steps *s = mem_new(struct fixture_steps);

    s->fn = fn;
    c->work = s;
    c->on_cancel = fixture_steps_cancel;
    fixture_next_step(c);
}

static void fixture_end_steps(struct mcp_server_call *c, const char *result)
{
    free(take_ptr(&c->work));
    c->on_cancel = NULL;
    mcp_server_call_result(c, result);
}

static void fixture_log(struct mcp_server_call *c, const char *text)
{
    auto_free char *params = str_printf("{\"level\":\"info\",\"logger\":\"conformance\",\"data\":\"%s\"}", text);
    bool is_wanted = c->is_modern ? c->log_level >= 0 && c->log_level <= mcp_log_level("info")
                                  : c->log_level <= mcp_log_level("info");

    if (is_wanted)
        mcp_server_call_notify(c, "notifications/message", params);
}

static void fixture_logging_step(struct mcp_server_call *c, unsigned step)
{
    static const char *const texts[] = { "Tool execution started", "Tool processing data", "Tool execution completed" };

    if (step < ARRAY_LEN(texts)) {
        fixture_log(c, texts[step]);
        fixture_next_step(c);
        return;
    }
    fixture_end_steps(c, TEXT("The tool logged three messages."));
}

static void fixture_tool_logging(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    fixture_start_steps(c, fixture_logging_step);
}

static void fixture_progress_step(struct mcp_server_call *c, unsigned step)
{
    if (step < 3) {
        mcp_server_call_progress(c, 50u * step, 100, NULL);
        fixture_next_step(c);
        return;
    }
    fixture_end_steps(c, TEXT("The tool reported its progress."));
}

static void fixture_tool_progress(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    fixture_start_steps(c, fixture_progress_step);
}

/* The stream breaks before the result, which the client reads from a resumed stream. */
static void fixture_reconnection_step(struct mcp_server_call *c, unsigned step)
{
    if (step == 0 && c->req && c->replay) {
        struct http_req *req = take_ptr(&c->req);

        http_on_client_gone(req, NULL, NULL);
        http_stream_end(req);
    }
    if (step < 4) {
        fixture_next_step(c);
        return;
    }
    fixture_end_steps(c, TEXT("The stream was resumed."));
}

static void fixture_tool_reconnection(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    (void)mcp_server_call_begin_stream(c);
    fixture_start_steps(c, fixture_reconnection_step);
}

/* --- tools that ask the client (legacy era) --- */

static void fixture_ask_cancel(struct mcp_server_call *c)
{
    c->on_reply = NULL;
}

static void fixture_on_reply(struct mcp_server_call *c, const struct jsonrpc_message *m)
{
    const json_t *content = json_object_get(m->result, "content");
    const char *text = json_string_value(json_object_get(content, "text"));
    const char *action = json_string_value(json_object_get(m->result, "action"));
    auto_free char *dump = content ? json_dumps(content, JSON_COMPACT) : NULL;
    auto_buf line = { 0 };
    auto_buf out = { 0 };
    struct jsonw w;

    c->on_cancel = NULL;
    if (m->kind == JSONRPC_ERROR)
        buf_addf(&line, "The client refused: %s", m->text);
    else if (action)
        buf_addf(&line, "Elicitation completed: action=%s, content=%s", action, dump ? dump : "{}");
    else
        buf_addf(&line, "LLM response: %s", text ? text : "");
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "content");
    jsonw_object(&w);
    jsonw_kstr(&w, "type", "text");
    jsonw_kstr(&w, "text", line.data);
    jsonw_end_object(&w);
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

static void fixture_ask(struct mcp_server_call *c, const char *capability, const char *method, json_t *params)
{
    auto_free char *text = json_dumps(params, JSON_COMPACT);

    json_decref(params);
    c->on_cancel = fixture_ask_cancel;
    if (json_object_get(c->capabilities, capability) && mcp_server_call_ask(c, method, text, fixture_on_reply))
        return;
    c->on_cancel = NULL;
    mcp_tool_failed_text(c, "the client does not support what this tool asks for");
}

static void fixture_tool_sampling(struct mcp_server_call *c, const json_t *arguments)
{
    const char *prompt = json_string_value(json_object_get(arguments, "prompt"));

    fixture_ask(c, "sampling", "sampling/createMessage",
                json_pack("{s:[{s:s, s:{s:s, s:s}}], s:i}", "messages", "role", "user", "content", "type", "text",
                          "text", prompt ? prompt : "", "maxTokens", 100));
}

static void fixture_elicit(struct mcp_server_call *c, const char *message, const char *schema)
{
    fixture_ask(c, "elicitation", "elicitation/create",
                json_pack("{s:s, s:o}", "message", message, "requestedSchema", json_loads(schema, 0, NULL)));
}

static void fixture_tool_elicitation(struct mcp_server_call *c, const json_t *arguments)
{
    const char *message = json_string_value(json_object_get(arguments, "message"));

    fixture_elicit(c, message ? message : "Please answer",
                   "{\"type\":\"object\",\"properties\":{\"username\":{\"type\":\"string\",\"description\":\"User's "
                   "response\"},\"email\":{\"type\":\"string\",\"description\":\"User's email "
                   "address\"}},\"required\":[\"username\",\"email\"]}");
}

static void fixture_tool_defaults(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    fixture_elicit(
        c, "Please check the values",
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"default\":\"John "
        "Doe\"},\"age\":{\"type\":\"integer\",\"default\":30},\"score\":{\"type\":\"number\",\"default\":95.5},"
        "\"status\":{\"type\":\"string\",\"enum\":[\"active\",\"inactive\",\"pending\"],\"default\":\"active\"},"
        "\"verified\":{\"type\":\"boolean\",\"default\":true}}}");
}

#define CHOICES(first, second, third)                                                                             \
    "[{\"const\":\"value1\",\"title\":\"" first "\"},{\"const\":\"value2\",\"title\":\"" second "\"},{\"const\":" \
    "\"value3\",\"title\":\"" third "\"}]"

static void fixture_tool_enums(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    fixture_elicit(
        c, "Please choose",
        "{\"type\":\"object\",\"properties\":{\"untitledSingle\":{\"type\":\"string\",\"enum\":[\"option1\","
        "\"option2\",\"option3\"]},\"titledSingle\":{\"type\":\"string\",\"oneOf\":" CHOICES(
            "First Option", "Second Option",
            "Third Option") "},\"legacyEnum\":{\"type\":\"string\",\"enum\":[\"opt1\",\"opt2\",\"opt3\"],"
                            "\"enumNames\":[\"Option One\",\"Option Two\",\"Option Three\"]},"
                            "\"untitledMulti\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"enum\":["
                            "\"option1\",\"option2\",\"option3\"]}},\"titledMulti\":{\"type\":\"array\","
                            "\"items\":{\"anyOf\":" CHOICES("First Choice", "Second Choice", "Third Choice") "}}}}");
}

/* --- tools that need more input (modern era) --- */

#define ELICIT(key, message, property, type)                                                         \
    "\"" key "\":{\"method\":\"elicitation/create\",\"params\":{\"message\":\"" message              \
    "\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"" property "\":{\"type\":\"" type \
    "\"}},\"required\":[\"" property "\"]}}}"
#define SAMPLE(key, text)                                                                                           \
    "\"" key "\":{\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[{\"role\":\"user\",\"content\":{" \
    "\"type\":\"text\",\"text\":\"" text "\"}}],\"maxTokens\":100}}"
#define ROOTS(key) "\"" key "\":{\"method\":\"roots/list\",\"params\":{}}"

struct fixture_round {
    const char *requests; /* members of inputRequests */
    const char *keys[4];  /* that the answer must have */
    bool is_signed;       /* the round has a requestState */
};

static void fixture_sign(const struct mcp_server_call *c, const char *label, char ret[2 * MAC_LEN + 1])
{
    uint8_t mac[MAC_LEN];
    auto_free char *text = str_printf("%s|%s|%s", principal_id(&c->principal), label, c->principal.owner);

    mac_compute(&c->mcp->fixtures->key, "mcp.state", text, strlen(text), mac);
    for (size_t i = 0; i < MAC_LEN; i++)
        snprintf(ret + 2 * i, 3, "%02x", mac[i]);
}

static void fixture_request_input(struct mcp_server_call *c, const char *name, unsigned round,
                                  const struct fixture_round *r)
{
    auto_buf out = { 0 };
    char mac[2 * MAC_LEN + 1];
    auto_free char *label = str_printf("%s %u", name, round);

    buf_addf(&out, "{\"resultType\":\"input_required\",\"inputRequests\":{%s}", r->requests);
    if (r->is_signed) {
        fixture_sign(c, label, mac);
        buf_addf(&out, ",\"requestState\":\"%u.%s\"", round, mac);
    }
    buf_adds(&out, "}");
    mcp_server_call_result(c, out.data);
}

static bool fixture_has_responses(const struct mcp_server_call *c, const struct fixture_round *r)
{
    const json_t *responses = json_object_get(c->params, "inputResponses");

    for (size_t i = 0; i < ARRAY_LEN(r->keys) && r->keys[i]; i++)
        if (!json_is_object(json_object_get(responses, r->keys[i])))
            return false;
    return true;
}

/* The round that the state proves; -1: the state is not one that this server signed. */
static int fixture_round_of_state(const struct mcp_server_call *c, const char *name)
{
    const char *state = mcp_server_call_text(c, "requestState");
    char mac[2 * MAC_LEN + 1];
    uint32_t round = 0;

    if (!json_object_get(c->params, "requestState"))
        return 0;
    if (!state || !str_eat_u32(&state, 9, &round) || !str_eat(&state, "."))
        return -1;
    auto_free char *label = str_printf("%s %u", name, round);
    fixture_sign(c, label, mac);
    return str_eq(state, mac) ? (int)round : -1;
}

/* Asks for the input of each round in turn, then answers. */
static void fixture_rounds(struct mcp_server_call *c, const char *name, const struct fixture_round *rounds, unsigned n,
                           const char *result)
{
    int round = fixture_round_of_state(c, name);

    if (!c->is_modern) {
        mcp_tool_failed_text(c, "this tool needs revision " MCP_MODERN_REVISION);
    } else if (round < 0 || (unsigned)round >= n) {
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "requestState: was changed, or is not from this server", NULL);
    } else if (!fixture_has_responses(c, &rounds[round])) {
        fixture_request_input(c, name, (unsigned)round, &rounds[round]);
    } else if ((unsigned)round + 1 < n) {
        fixture_request_input(c, name, (unsigned)round + 1, &rounds[round + 1]);
    } else {
        mcp_server_call_result(c, result);
    }
}

#define ROUNDS_TOOL(fn, name, result, ...)                                    \
    static void fn(struct mcp_server_call *c, const json_t *arguments UNUSED) \
    {                                                                         \
        static const struct fixture_round rounds[] = { __VA_ARGS__ };         \
                                                                              \
        fixture_rounds(c, name, rounds, ARRAY_LEN(rounds), result);           \
    }
/* clang-format off */
ROUNDS_TOOL(fixture_input_elicitation, "elicitation", TEXT("Hello!"),
            { ELICIT("user_name", "What is your name?", "name", "string"), { "user_name" } })
ROUNDS_TOOL(fixture_input_sampling, "sampling", TEXT("The client answered."),
            { SAMPLE("capital_question", "What is the capital of France?"), { "capital_question" } })
ROUNDS_TOOL(fixture_input_roots, "roots", TEXT("The client has roots."),
            { ROOTS("client_roots"), { "client_roots" } })
ROUNDS_TOOL(fixture_input_state, "state", TEXT("state-ok"),
            { ELICIT("confirm", "Please confirm", "ok", "boolean"), { "confirm" }, true })
ROUNDS_TOOL(fixture_input_tampered, "tampered", TEXT("state-ok"),
            { ELICIT("confirm", "Please confirm", "ok", "boolean"), { "confirm" }, true })
ROUNDS_TOOL(fixture_input_multiple, "multiple", TEXT("All inputs are there."),
            { ELICIT("user_name", "What is your name?", "name", "string") "," SAMPLE("greeting", "Generate a greeting") ","
              ROOTS("client_roots"), { "user_name", "greeting", "client_roots" }, true })
ROUNDS_TOOL(fixture_input_multi_round, "multi_round", TEXT("Both steps are done."),
            { ELICIT("step1", "Step 1: What is your name?", "name", "string"), { "step1" }, true },
            { ELICIT("step2", "Step 2: What is your favorite color?", "color", "string"), { "step2" }, true })
ROUNDS_TOOL(fixture_streaming, "streaming", TEXT("The client confirmed."),
            { ELICIT("confirm", "Please confirm", "ok", "boolean"), { "confirm" } })
/* clang-format on */

/* Asks only for what the client can do. */
static void fixture_input_capabilities(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    static const struct fixture_round sampling[] = { { SAMPLE("question", "Say something"), { "question" }, false } };
    static const struct fixture_round elicitation[] = {
        { ELICIT("name", "Name?", "name", "string"), { "name" }, false }
    };
    bool samples = json_object_get(c->capabilities, "sampling") != NULL;

    fixture_rounds(c, "capabilities", samples ? sampling : elicitation, 1, TEXT("The client answered."));
}

static void fixture_missing_capability(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    if (json_object_get(c->capabilities, "sampling"))
        mcp_server_call_result(c, TEXT("The client supports sampling."));
    else
        mcp_server_call_error_status(c, 400, MCP_CAPABILITY_MISSING, "this tool needs a client that supports sampling",
                                     "{\"requiredCapabilities\":{\"sampling\":{}}}");
}

static void fixture_logging_once(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    fixture_log(c, "one message");
    mcp_server_call_result(c, TEXT("The tool logged one message."));
}

static void fixture_change_tools(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    mcp_notify_list_changed(c->mcp, "tools");
    mcp_server_call_result(c, TEXT("The list of tools changed."));
}

static void fixture_change_prompts(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    mcp_notify_list_changed(c->mcp, "prompts");
    mcp_server_call_result(c, TEXT("The list of prompts changed."));
}

/* --- the table of tools --- */

#define ONE_STRING(name) \
    "{\"type\":\"object\",\"properties\":{\"" name "\":{\"type\":\"string\"}},\"required\":[\"" name "\"]}"

static const char fixture_schema_2020_12[] =
    "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\",\"$defs\":{\"address\":{"
    "\"$anchor\":\"addressDef\",\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"city\":{"
    "\"type\":"
    "\"string\"}}}},\"properties\":{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":\"#/$defs/"
    "address\"},\"contactMethod\":{\"type\":\"string\",\"enum\":[\"phone\",\"email\"]},\"phone\":{\"type\":\"string\"},"
    "\"email\":{\"type\":\"string\"}},\"allOf\":[{\"anyOf\":[{\"required\":[\"phone\"]},{\"required\":[\"email\"]}]}],"
    "\"if\":{\"properties\":{\"contactMethod\":{\"const\":\"phone\"}},\"required\":[\"contactMethod\"]},\"then\":{"
    "\"required\":[\"phone\"]},\"else\":{\"required\":[\"email\"]},\"additionalProperties\":false}";

static const struct fixture_tool fixture_tools[] = {
    { "test_simple_text", NO_ARGUMENTS, TEXT("This is a simple text response for testing."), NULL },
    { "test_image_content", NO_ARGUMENTS, "{\"content\":[" IMAGE "]}", NULL },
    { "test_audio_content", NO_ARGUMENTS,
      "{\"content\":[{\"type\":\"audio\",\"data\":\"" FIXTURE_WAV "\",\"mimeType\":\"audio/wav\"}]}", NULL },
    { "test_embedded_resource", NO_ARGUMENTS,
      "{\"content\":[{\"type\":\"resource\",\"resource\":{\"uri\":\"test://embedded-resource\",\"mimeType\":\"text/"
      "plain\",\"text\":\"This is an embedded resource content.\"}}]}",
      NULL },
    { "test_multiple_content_types", NO_ARGUMENTS,
      "{\"content\":[{\"type\":\"text\",\"text\":\"Multiple content types test:\"}," IMAGE
      ",{\"type\":\"resource\",\"resource\":{\"uri\":\"test://mixed-content-resource\",\"mimeType\":\"application/"
      "json\",\"text\":\"{\\\"test\\\":\\\"data\\\",\\\"value\\\":123}\"}}]}",
      NULL },
    { "test_error_handling", NO_ARGUMENTS,
      "{\"content\":[{\"type\":\"text\",\"text\":\"This tool intentionally returns an error for "
      "testing\"}],\"isError\":true}",
      NULL },
    { "test_tool_with_logging", NO_ARGUMENTS, NULL, fixture_tool_logging },
    { "test_tool_with_progress", NO_ARGUMENTS, NULL, fixture_tool_progress },
    { "test_reconnection", NO_ARGUMENTS, NULL, fixture_tool_reconnection },
    { "test_sampling", ONE_STRING("prompt"), NULL, fixture_tool_sampling },
    { "test_elicitation", ONE_STRING("message"), NULL, fixture_tool_elicitation },
    { "test_elicitation_sep1034_defaults", NO_ARGUMENTS, NULL, fixture_tool_defaults },
    { "test_elicitation_sep1330_enums", NO_ARGUMENTS, NULL, fixture_tool_enums },
    { "json_schema_2020_12_tool", fixture_schema_2020_12, TEXT("The arguments were accepted."), NULL },
    { "test_missing_capability", NO_ARGUMENTS, NULL, fixture_missing_capability },
    { "test_streaming_elicitation", NO_ARGUMENTS, NULL, fixture_streaming },
    { "test_logging_tool", NO_ARGUMENTS, NULL, fixture_logging_once },
    { "test_trigger_tool_change", NO_ARGUMENTS, NULL, fixture_change_tools },
    { "test_trigger_prompt_change", NO_ARGUMENTS, NULL, fixture_change_prompts },
    { "test_input_required_result_elicitation", NO_ARGUMENTS, NULL, fixture_input_elicitation },
    { "test_input_required_result_sampling", NO_ARGUMENTS, NULL, fixture_input_sampling },
    { "test_input_required_result_list_roots", NO_ARGUMENTS, NULL, fixture_input_roots },
    { "test_input_required_result_request_state", NO_ARGUMENTS, NULL, fixture_input_state },
    { "test_input_required_result_tampered_state", NO_ARGUMENTS, NULL, fixture_input_tampered },
    { "test_input_required_result_multiple_inputs", NO_ARGUMENTS, NULL, fixture_input_multiple },
    { "test_input_required_result_multi_round", NO_ARGUMENTS, NULL, fixture_input_multi_round },
    { "test_input_required_result_capabilities", NO_ARGUMENTS, NULL, fixture_input_capabilities },
};

void mcp_fixtures_write_tools(struct jsonw *w)
{
    for (size_t i = 0; i < ARRAY_LEN(fixture_tools); i++) {
        jsonw_object(w);
        jsonw_kstr(w, "name", fixture_tools[i].name);
        jsonw_kstr(w, "description", "A fixture of the conformance suite.");
        jsonw_kraw(w, "inputSchema", fixture_tools[i].input_schema);
        jsonw_end_object(w);
    }
}

bool mcp_fixtures_call_tool(struct mcp_server_call *c, const char *name, const json_t *arguments)
{
    for (size_t i = 0; i < ARRAY_LEN(fixture_tools); i++) {
        if (!str_eq(fixture_tools[i].name, name))
            continue;
        if (fixture_tools[i].result)
            mcp_server_call_result(c, fixture_tools[i].result);
        else
            fixture_tools[i].fn(c, arguments);
        return true;
    }
    return false;
}

/* --- resources --- */

void mcp_fixtures_write_resources(struct jsonw *w)
{
    static const char *const rows[][3] = {
        { "test://static-text", "static-text", "text/plain" },
        { "test://static-binary", "static-binary", "image/png" },
        { "test://watched-resource", "watched-resource", "text/plain" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        jsonw_object(w);
        jsonw_kstr(w, "uri", rows[i][0]);
        jsonw_kstr(w, "name", rows[i][1]);
        jsonw_kstr(w, "mimeType", rows[i][2]);
        jsonw_end_object(w);
    }
}

void mcp_fixtures_write_templates(struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "uriTemplate", "test://template/{id}/data");
    jsonw_kstr(w, "name", "template-data");
    jsonw_kstr(w, "mimeType", "application/json");
    jsonw_end_object(w);
}

static bool fixture_read_template(struct mcp_server_call *c, const char *uri)
{
    const char *p = uri;
    auto_buf out = { 0 };

    if (!str_eat(&p, "test://template/") || !str_ends(p, "/data") || strlen(p) > 64)
        return false;
    auto_free char *id = str_dup_n(p, strcspn(p, "/\"\\"));
    buf_addf(&out, "{\"id\":\"%s\",\"templateTest\":true,\"data\":\"Data for ID: %s\"}", id, id);
    mcp_answer_resource(c, uri, "application/json", out.data, out.len);
    return true;
}

bool mcp_fixtures_read_resource(struct mcp_server_call *c, const char *uri)
{
    static const char text[] = "This is the content of the static text resource.";
    auto_buf png = { 0 };

    if (str_eq(uri, "test://static-text") || str_eq(uri, "test://watched-resource")) {
        mcp_answer_resource(c, uri, "text/plain", text, strlen(text));
        return true;
    }
    if (!str_eq(uri, "test://static-binary"))
        return fixture_read_template(c, uri);
    (void)text_from_base64(&png, FIXTURE_PNG, strlen(FIXTURE_PNG));
    mcp_answer_resource(c, uri, "image/png", png.data, png.len);
    return true;
}

/* --- prompts --- */

#define MESSAGE(content) "{\"messages\":[{\"role\":\"user\",\"content\":" content "}"
#define MESSAGE_TEXT(text) MESSAGE("{\"type\":\"text\",\"text\":\"" text "\"}")

static void fixture_prompt_arguments(struct mcp_server_call *c, const json_t *arguments)
{
    const char *a = json_string_value(json_object_get(arguments, "arg1"));
    const char *b = json_string_value(json_object_get(arguments, "arg2"));
    auto_free char *text = str_printf("Prompt with arguments: arg1='%s', arg2='%s'", a ? a : "", b ? b : "");
    json_t *result = json_pack("{s:[{s:s, s:{s:s, s:s}}]}", "messages", "role", "user", "content", "type", "text",
                               "text", text);
    auto_free char *out = json_dumps(result, JSON_COMPACT);

    json_decref(result);
    mcp_server_call_result(c, out);
}

static void fixture_prompt_resource(struct mcp_server_call *c, const json_t *arguments)
{
    const char *uri = json_string_value(json_object_get(arguments, "resourceUri"));
    json_t *result = json_pack("{s:[{s:s, s:{s:s, s:{s:s, s:s, s:s}}}, {s:s, s:{s:s, s:s}}]}", "messages", "role",
                               "user", "content", "type", "resource", "resource", "uri",
                               uri ? uri : "test://example-resource", "mimeType", "text/plain", "text",
                               "Embedded resource content for testing.", "role", "user", "content", "type", "text",
                               "text", "Please process the embedded resource above.");
    auto_free char *out = json_dumps(result, JSON_COMPACT);

    json_decref(result);
    mcp_server_call_result(c, out);
}

static void fixture_prompt_input(struct mcp_server_call *c, const json_t *arguments UNUSED)
{
    static const struct fixture_round round[] = { { ELICIT("user_context", "What context should the prompt use?",
                                                           "context", "string"),
                                                    { "user_context" },
                                                    false } };

    fixture_rounds(c, "prompt", round, 1, MESSAGE_TEXT("The prompt has its context.") "]}");
}

static const struct {
    const char *name, *arguments, *result;
    void (*fn)(struct mcp_server_call *c, const json_t *arguments);
} fixture_prompts[] = {
    { "test_simple_prompt", "[]", MESSAGE_TEXT("This is a simple prompt for testing.") "]}", NULL },
    { "test_prompt_with_arguments", "[{\"name\":\"arg1\",\"required\":true},{\"name\":\"arg2\",\"required\":true}]",
      NULL, fixture_prompt_arguments },
    { "test_prompt_with_embedded_resource", "[{\"name\":\"resourceUri\",\"required\":true}]", NULL,
      fixture_prompt_resource },
    { "test_prompt_with_image", "[]",
      MESSAGE(
          IMAGE) ",{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"Please analyze the image above.\"}}]}",
      NULL },
    { "test_input_required_result_prompt", "[]", NULL, fixture_prompt_input },
};

void mcp_fixtures_write_prompts(struct jsonw *w)
{
    for (size_t i = 0; i < ARRAY_LEN(fixture_prompts); i++) {
        jsonw_object(w);
        jsonw_kstr(w, "name", fixture_prompts[i].name);
        jsonw_kstr(w, "description", "A fixture of the conformance suite.");
        jsonw_kraw(w, "arguments", fixture_prompts[i].arguments);
        jsonw_end_object(w);
    }
}

bool mcp_fixtures_get_prompt(struct mcp_server_call *c, const char *name, const json_t *arguments)
{
    for (size_t i = 0; i < ARRAY_LEN(fixture_prompts); i++) {
        if (!str_eq(fixture_prompts[i].name, name))
            continue;
        if (fixture_prompts[i].result)
            mcp_server_call_result(c, fixture_prompts[i].result);
        else
            fixture_prompts[i].fn(c, arguments);
        return true;
    }
    return false;
}
