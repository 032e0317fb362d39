/* Several MCP servers with one namespace, and the file that lists them. */
#include "tests/unit/remote/mcp/mcp_scene.h"

#include "remote/mcp/mcp_config.h"
#include "remote/mcp/mcp_servers.h"

static struct ev *loop;
static struct mcp_servers *set;
static json_t *listed;
static bool is_listed;

static void on_listed(void *arg UNUSED, const json_t *result)
{
    is_listed = true;
    listed = json_incref((json_t *)result);
}

static void list_tools(uint32_t timeout_ms)
{
    json_decref(listed);
    listed = NULL;
    is_listed = false;
    mcp_servers_list_tools(set, timeout_ms, on_listed, NULL);
    assert_false(is_listed);
    for (int i = 0; i < 400 && !is_listed; i++)
        ev_turn(loop, 20);
    assert_true(is_listed);
}

/* "name,name": of the tools, in order. */
static const char *listed_names(const char *key)
{
    static char text[256];
    const json_t *item;
    size_t i;

    text[0] = '\0';
    json_array_foreach(json_object_get(listed, key), i, item)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? "," : "",
                 json_string_value(json_object_get(item, "name")));
    return text;
}

static void answer_calls(struct scene *s, const char *method, json_t *m)
{
    if (!scene_answer(s, method, m) && str_eq(method, "tools/call"))
        scene_result(s, m, TEXT_RESULT);
}

static void answer_no_list(struct scene *s, const char *method, json_t *m)
{
    if (!str_eq(method, "tools/list"))
        scene_answer(s, method, m);
}

static void set_start(void)
{
    static const struct mcp_servers_ops ops;
    struct err err = { 0 };

    assert_int_equal(ev_new(&loop, &err), 0);
    set = mcp_servers_new(loop, &ops, NULL);
}

static void set_add(const char *name, struct scene *s)
{
    struct err err = { 0 };

    s->ev = loop;
    s->is_modern = true;
    int fd = scene_open_server(s);
    const struct mcp_client_spec spec = { .in_fd = fd, .out_fd = fd };
    assert_int_equal(mcp_servers_add(set, name, &spec, &err), 0);
}

static void set_stop(struct scene *scenes, size_t n)
{
    mcp_servers_free(set);
    for (size_t i = 0; i < n; i++) {
        scene_close_server(&scenes[i]);
        buf_done(&scenes[i].input);
        buf_done(&scenes[i].log);
    }
    ev_free(loop);
    json_decref(listed);
    listed = NULL;
}

TEST(tools_of_several_servers_are_named_after_their_server)
{
    struct scene s[2] = { { .script = answer_calls }, { .script = answer_calls } };
    struct mcp_client *client;
    const char *tool;
    struct err err = { 0 };

    set_start();
    set_add("one", &s[0]);
    list_tools(5000);
    assert_string_equal(listed_names("tools"), "add");
    assert_int_equal(mcp_servers_resolve(set, "add", &client, &tool, &err), 0);
    set_add("two", &s[1]);
    list_tools(5000);
    assert_string_equal(listed_names("tools"), "one__add,two__add");
    assert_int_equal(mcp_servers_resolve(set, "two__add", &client, &tool, &err), 0);
    assert_ptr_equal(client, mcp_servers_find(set, "two"));
    assert_string_equal(tool, "add");
    assert_int_equal(mcp_servers_resolve(set, "add", &client, &tool, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    assert_int_equal(mcp_servers_resolve(set, "three__add", &client, &tool, &err), -1);
    mcp_servers_remove(set, "one");
    assert_int_equal(mcp_servers_count(set), 1);
    set_stop(s, 2);
}

TEST(a_name_that_is_too_long_with_its_server_is_dropped)
{
    struct scene s[2] = { { .script = answer_calls,
                            .tools = "{\"name\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\","
                                     "\"inputSchema\":{}}" },
                          { .script = answer_calls } };

    set_start();
    set_add("one", &s[0]);
    set_add("two", &s[1]);
    list_tools(5000);
    assert_string_equal(listed_names("tools"), "two__add");
    assert_int_equal(json_array_size(json_object_get(listed, "dropped")), 1);
    set_stop(s, 2);
}

TEST(a_slow_and_a_dead_server_do_not_hide_the_others)
{
    struct scene s[3] = { { .script = answer_no_list }, { .script = answer_calls }, { .script = answer_calls } };

    set_start();
    set_add("slow", &s[0]);
    set_add("dead", &s[1]);
    set_add("good", &s[2]);
    scene_close_server(&s[1]);
    list_tools(200);
    assert_string_equal(listed_names("tools"), "good__add");
    assert_string_equal(listed_names("servers"), "slow,dead,good");
    const json_t *servers = json_object_get(listed, "servers");
    const json_t *slow = json_object_get(json_array_get(servers, 0), "error");
    const json_t *dead = json_object_get(json_array_get(servers, 1), "error");
    assert_string_equal(json_string_value(json_object_get(slow, "code")), "timeout");
    assert_string_equal(json_string_value(json_object_get(dead, "code")), "mcp_server_ended");
    set_stop(s, 3);
}

TEST(a_server_that_is_removed_during_a_listing_has_an_error_in_it)
{
    struct scene s[2] = { { .script = answer_no_list }, { .script = answer_calls } };

    set_start();
    set_add("slow", &s[0]);
    set_add("good", &s[1]);
    is_listed = false;
    mcp_servers_list_tools(set, 5000, on_listed, NULL);
    for (int i = 0; i < 10; i++)
        ev_turn(loop, 5);
    mcp_servers_remove(set, "slow");
    for (int i = 0; i < 100 && !is_listed; i++)
        ev_turn(loop, 20);
    assert_string_equal(listed_names("tools"), "good__add");
    set_stop(s, 2);
}

TEST(names_of_servers_cannot_be_ambiguous)
{
    static const char *const bad[] = { "", "a__b", "_a", "a_", "a b", "a\033", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
    struct mcp_client_spec spec = { .url = "http://localhost/" };
    struct err err = { 0 };

    set_start();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(mcp_servers_add(set, bad[i], &spec, &err), -1);
    assert_int_equal(mcp_servers_add(set, "a-1_b", &spec, &err), 0);
    assert_int_equal(mcp_servers_add(set, "a-1_b", &spec, &err), -1);
    assert_int_equal(err.id, ERR_EXISTS);
    spec.url = "file:///etc/passwd";
    assert_int_equal(mcp_servers_add(set, "file", &spec, &err), -1);
    set_stop(NULL, 0);
}

/* --- the file --- */

static char *own_getenv(const char *name)
{
    return str_eq(name, "TOKEN") ? (char *)"t0k" : NULL;
}

TEST(a_file_of_servers_is_read_with_its_variables)
{
    static const char text[] =
        "{\"mcpServers\":{\"files\":{\"command\":\"npx\",\"args\":[\"-y\",\"${DIR:-/tmp}/x\",\"$HOME\"],"
        "\"env\":{\"KEY\":\"${env:TOKEN}\"},\"autoApprove\":[]},"
        "\"off\":{\"disabled\":true},"
        "\"web\":{\"type\":\"http\",\"url\":\"https://h/mcp\",\"headers\":{\"Authorization\":\"Bearer ${TOKEN}\"}}}}";
    struct mcp_config c;
    struct err err = { 0 };

    assert_int_equal(mcp_config_parse(text, strlen(text), own_getenv, &c, &err), 0);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.servers[0].name, "files");
    assert_null(c.servers[0].url);
    assert_string_equal(c.servers[0].command[0], "npx");
    assert_string_equal(c.servers[0].command[2], "/tmp/x");
    assert_string_equal(c.servers[0].command[3], "$HOME");
    assert_null(c.servers[0].command[4]);
    assert_string_equal(c.servers[0].env[0], "KEY=t0k");
    assert_string_equal(c.servers[1].url, "https://h/mcp");
    assert_string_equal(c.servers[1].headers[0], "Authorization: Bearer t0k");
    mcp_config_done(&c);
}

TEST(errors_of_the_file_name_the_server_and_the_key)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "{}", "mcpServers" },
        { "{\"mcpServers\":[]}", "mcpServers" },
        { "{\"mcpServers\":{\"a\":7}}", "'a'" },
        { "{\"mcpServers\":{\"a\":{}}}", "either a url or a command" },
        { "{\"mcpServers\":{\"a\":{\"url\":\"http://h\",\"command\":\"x\"}}}", "either a url or a command" },
        { "{\"mcpServers\":{\"a\":{\"command\":\"x\",\"args\":\"y\"}}}", "'a': args" },
        { "{\"mcpServers\":{\"a\":{\"command\":\"x\",\"env\":{\"A=B\":\"y\"}}}}", "'a': env" },
        { "{\"mcpServers\":{\"a\":{\"url\":\"http://h\",\"type\":\"sse\"}}}", "'sse'" },
        { "{\"mcpServers\":{\"a\":{\"url\":\"http://h\",\"type\":\"stdio\"}}}", "'a': type" },
        { "{\"mcpServers\":{\"a\":{\"url\":\"${NOPE}\"}}}", "NOPE is not set" },
        { "{\"mcpServers\":{\"a__b\":{\"url\":\"http://h\"}}}", "name" },
        { "{\"mcpServers\":{\"a\":{\"command\":\"x\"},\"a\":{\"command\":\"y\"}}}", "duplicate" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct mcp_config c;
        struct err err = { 0 };

        assert_int_equal(mcp_config_parse(rows[i].text, strlen(rows[i].text), own_getenv, &c, &err), -1);
        if (!strstr(err.msg, rows[i].part))
            fail_msg("row %zu: %s", i, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(tools_of_several_servers_are_named_after_their_server),
        RUN(a_name_that_is_too_long_with_its_server_is_dropped),
        RUN(a_slow_and_a_dead_server_do_not_hide_the_others),
        RUN(a_server_that_is_removed_during_a_listing_has_an_error_in_it),
        RUN(names_of_servers_cannot_be_ambiguous),
        RUN(a_file_of_servers_is_read_with_its_variables),
        RUN(errors_of_the_file_name_the_server_and_the_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
