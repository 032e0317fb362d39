/* Specs: a request over a template over the defaults. */
#include "tests/unit/test.h"

#include "service/custom_policy.h"
#include "service/spec.h"

#include <stdio.h>

static struct err last;

static int read_as(struct spec *s, const char *text, enum spec_of of)
{
    json_t *j = NULL;

    last = (struct err){ 0 };
    if (json_input_parse(text, strlen(text), &j, &last) < 0)
        return -1;
    int rc = spec_read(s, j, of, NULL, &last);
    json_decref(j);
    return rc;
}

static int read_over(struct spec *s, const char *text)
{
    return read_as(s, text, SPEC_OF_SANDBOX);
}

TEST(defaults_apply_to_absent_fields)
{
    struct spec s;
    struct sandbox_spec box;

    spec_init(&s);
    assert_int_equal(read_over(&s, "{\"runtime\":\"python\"}"), 0);
    assert_int_equal(spec_finish(&s, &last), 0);
    assert_int_equal(s.limits.v[LIMIT_MEMORY], 512 * MIB);
    assert_int_equal(s.limits.v[LIMIT_LIFETIME], 300000);
    spec_fill_sandbox_spec(&s, &box);
    assert_int_equal(box.profile, PROFILE_PYTHON);
    assert_int_equal(box.level, LEVEL_STANDARD);
    spec_done(&s);
}

TEST(a_request_overrides_its_template)
{
    struct spec s;

    spec_init(&s);
    assert_int_equal(read_as(&s,
                             "{\"runtime\":\"node\",\"resources\":{\"memoryBytes\":1073741824,\"pids\":10},"
                             "\"env\":{\"A\":\"1\",\"B\":\"2\"},\"metadata\":{\"x\":\"1\",\"y\":\"2\"},"
                             "\"idleAction\":\"pause\"}",
                             SPEC_OF_TEMPLATE),
                     0);
    assert_int_equal(read_over(&s, "{\"template\":\"t\",\"resources\":{\"pids\":20,\"cpuPinning\":true},"
                                   "\"env\":{\"B\":\"3\"},\"metadata\":{\"y\":\"4\"},\"lifetimeMs\":1000}"),
                     0);
    assert_int_equal(spec_finish(&s, &last), 0);
    assert_string_equal(s.runtime, "node");
    assert_int_equal(s.limits.v[LIMIT_MEMORY], GIB);
    assert_int_equal(s.limits.v[LIMIT_PIDS], 20);
    assert_int_equal(s.limits.v[LIMIT_LIFETIME], 1000);
    assert_true(s.cpu_pinning);
    assert_int_equal(s.idle_action, IDLE_PAUSE);
    assert_int_equal(s.nenv, 2);
    assert_string_equal(s.env[0], "A=1");
    assert_string_equal(s.env[1], "B=3");
    auto_free char *metadata = spec_metadata_json(&s);
    assert_string_equal(metadata, "{\"x\":\"1\",\"y\":\"4\"}");
    spec_done(&s);
}

TEST(a_stored_spec_is_read_back_and_contains_no_variables)
{
    struct spec s, again;
    struct buf out = { 0 };
    struct jsonw w;

    spec_init(&s);
    spec_init(&again);
    assert_int_equal(
        read_over(&s, "{\"runtime\":\"bash\",\"resources\":{\"cpuMillis\":250,\"storageBytes\":1048576},"
                      "\"driver\":\"bwrap\",\"env\":{\"SECRET\":\"hunter2\"},\"idleTimeoutMs\":5,\"timeoutMs\":7}"),
        0);
    assert_int_equal(spec_finish(&s, &last), 0);
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    spec_json(&s, &w);
    jsonw_end_object(&w);
    assert_null(strstr(out.data, "hunter2"));
    assert_int_equal(read_over(&again, out.data), 0);
    assert_int_equal(spec_finish(&again, &last), 0);
    assert_memory_equal(&again.limits, &s.limits, sizeof(s.limits));
    assert_string_equal(again.runtime, "bash");
    assert_int_equal(again.driver, DRIVER_BWRAP);
    buf_done(&out);
    spec_done(&s);
    spec_done(&again);
}

TEST(the_driver_of_a_request_overrides_policy_and_template)
{
    struct operator_limits only_bwrap = { .forbidden_drivers = DRIVER_BIT(DRIVER_NATIVE) }, any = { 0 };
    struct sandbox_spec sandbox;
    struct spec s;

    spec_init(&s);
    assert_int_equal(read_over(&s, "{\"level\":\"custom\",\"policy\":{\"version\":1,\"driver\":\"bwrap\"}}"), 0);
    assert_true(s.has_driver && s.driver == DRIVER_BWRAP);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &only_bwrap, &last), 0);
    assert_int_equal(read_over(&s, "{\"driver\":\"native\"}"), 0);
    assert_int_equal(s.driver, DRIVER_NATIVE);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &any, &last), 0);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &only_bwrap, &last), -1);
    assert_int_equal(last.id, ERR_DRIVER_REFUSED);
    assert_string_equal(last.msg, "driver: the operator of this server does not allow driver native; it allows bwrap");
    spec_fill_sandbox_spec(&s, &sandbox);
    assert_int_equal(sandbox.driver, DRIVER_NATIVE);
    assert_int_equal(sandbox.network.mode, NETWORK_NONE);
    spec_done(&s);
}

static char *stored(const struct spec *s)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    spec_json(s, &w);
    jsonw_end_object(&w);
    return out.data;
}

TEST(the_network_of_a_request_replaces_that_of_its_template_and_is_stored)
{
    struct sandbox_spec sandbox;
    struct spec s, again;

    spec_init(&s);
    spec_init(&again);
    assert_int_equal(read_as(&s, "{\"network\":{\"allow\":[\"a.example\",\"b.example\"]}}", SPEC_OF_TEMPLATE), 0);
    assert_int_equal(read_over(&s, "{\"template\":\"t\"}"), 0);
    assert_string_equal(s.network.rules, "allow a.example\nallow b.example");
    assert_int_equal(read_over(&s, "{\"template\":\"t\",\"network\":{\"egress\":[\"c.example\"]}}"), 0);
    assert_int_equal(spec_finish(&s, &last), 0);
    auto_free char *text = stored(&s);
    assert_int_equal(read_over(&again, text), 0);
    assert_int_equal(spec_finish(&again, &last), 0);
    spec_fill_sandbox_spec(&again, &sandbox);
    assert_int_equal(sandbox.network.mode, NETWORK_EGRESS);
    assert_string_equal(sandbox.network.rules, "allow c.example");
    assert_int_equal(read_over(&again, "{\"network\":\"none\"}"), 0);
    assert_int_equal(again.network.mode, NETWORK_NONE);
    assert_null(again.network.rules);
    spec_done(&s);
    spec_done(&again);
}

TEST(the_operator_can_forbid_a_network_and_open_ranges)
{
    struct ip_prefix loopback;
    struct operator_limits forbids = { .forbids_network = true };
    struct operator_limits opens = { .open_ranges = &loopback, .nopen_ranges = 1 }, none = { 0 };
    struct spec s;

    assert_true(ip_prefix_parse("127.0.0.0/8", 11, &loopback));
    spec_init(&s);
    assert_int_equal(read_over(&s, "{\"network\":{\"allow\":[\"127.0.0.1:8080\"]}}"), 0);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &opens, &last), 0);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &none, &last), -1);
    assert_int_equal(last.id, ERR_EGRESS_RULE);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &forbids, &last), -1);
    assert_int_equal(last.id, ERR_POLICY_OPERATOR_LIMIT);
    assert_int_equal(read_over(&s, "{\"network\":\"none\"}"), 0);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &forbids, &last), 0);
    spec_done(&s);
}

TEST(a_spec_without_a_driver_gets_the_first_that_the_operator_allows)
{
    struct operator_limits only_bwrap = { .forbidden_drivers = DRIVER_BIT(DRIVER_NATIVE) };
    struct spec s;

    spec_init(&s);
    assert_int_equal(read_over(&s, "{}"), 0);
    assert_int_equal(custom_policy_apply_operator_limits(&s, NULL, &last), 0);
    assert_int_equal(s.driver, DRIVER_NATIVE);
    spec_done(&s);
    spec_init(&s);
    assert_int_equal(custom_policy_apply_operator_limits(&s, &only_bwrap, &last), 0);
    assert_int_equal(s.driver, DRIVER_BWRAP);
    spec_done(&s);
}

TEST(every_bad_value_is_refused_by_name)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "{\"runtime\":\"cobol\"}", "runtime: unknown runtime 'cobol'; use python, node, bash or sh" },
        { "{\"runtime\":\"pyton\"}", "runtime: unknown runtime 'pyton'; did you mean python?" },
        { "{\"runtime\":\"python-data\"}", "runtime: 'python-data' is a template; use \"template\": \"python-data\"" },
        { "{\"runtime\":7}", "runtime" },
        { "{\"runtime\":\"\"}", "runtime" },
        { "{\"driver\":\"bwarp\"}", "driver: unknown driver 'bwarp'; did you mean bwrap?" },
        { "{\"driver\":7}", "driver" },
        { "{\"network\":\"bridge\"}", "network: must be \"none\", or an object" },
        { "{\"network\":{\"allow\":[\"a b\"]}}", "network.allow[0]: " },
        { "{\"level\":\"low\"}", "level" },
        { "{\"level\":\"custom\"}", "level" },
        { "{\"owner\":\"me\"}", "owner" },
        { "{\"resources\":{\"memory\":1}}", "resources.memory: unknown field; did you mean memoryBytes?" },
        { "{\"resources\":{\"memoryBytes\":0}}", "resources.memoryBytes" },
        { "{\"resources\":{\"memoryBytes\":-1}}", "resources.memoryBytes" },
        { "{\"resources\":{\"memoryBytes\":\"1G\"}}", "resources.memoryBytes" },
        { "{\"resources\":{\"pids\":1}}", "resources.pids" },
        { "{\"resources\":{\"cpuPinning\":1}}", "resources.cpuPinning" },
        { "{\"resources\":[]}", "resources" },
        { "{\"lifetimeMs\":0}", "lifetimeMs" },
        { "{\"lifetimeMs\":99999999999999}", "lifetimeMs" },
        { "{\"idleAction\":\"kill\"}", "idleAction" },
        { "{\"env\":{\"A B\":\"\"}}", "env" },
        { "{\"env\":{\"A=B\":\"\"}}", "env" },
        { "{\"env\":{\"1A\":\"\"}}", "env" },
        { "{\"env\":{\"A\":1}}", "env.A" },
        { "{\"metadata\":{\"a\":1}}", "metadata" },
        { "{\"metadata\":{\"\":\"\"}}", "metadata" },
        { "{\"metadata\":{\"a=b\":\"\"}}", "metadata" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct spec s;

        spec_init(&s);
        if (read_over(&s, cases[i].text) == 0)
            fail_msg("%s was read", cases[i].text);
        if (!strstr(last.msg, cases[i].says))
            fail_msg("%s: '%s'", cases[i].text, last.msg);
        spec_done(&s);
    }
}

TEST(js07_variables_and_metadata_are_limited)
{
    struct spec s;
    struct buf b = { 0 };

    spec_init(&s);
    buf_adds(&b, "{\"env\":{");
    for (int i = 0; i < 257; i++)
        buf_addf(&b, "%s\"V%d\":\"\"", i ? "," : "", i);
    buf_adds(&b, "}}");
    assert_int_equal(read_over(&s, b.data), -1);
    buf_clear(&b);
    buf_adds(&b, "{\"env\":{\"A\":\"");
    for (int i = 0; i < 40000; i++)
        buf_adds(&b, "x");
    buf_adds(&b, "\"}}");
    assert_int_equal(read_over(&s, b.data), -1);
    buf_clear(&b);
    buf_adds(&b, "{\"metadata\":{");
    for (int i = 0; i < 33; i++)
        buf_addf(&b, "%s\"k%d\":\"\"", i ? "," : "", i);
    buf_adds(&b, "}}");
    assert_int_equal(read_over(&s, b.data), -1);
    buf_done(&b);
    spec_done(&s);
}

TEST(an_empty_spec_is_one_of_python)
{
    struct spec s;

    spec_init(&s);
    assert_int_equal(read_over(&s, "{}"), 0);
    assert_int_equal(spec_finish(&s, &last), 0);
    assert_string_equal(s.runtime, "python");
    assert_string_equal(s.zygote.language, "python");
    spec_done(&s);
}

TEST(an_impossible_spec_is_refused)
{
    struct spec s;

    spec_init(&s);
    assert_int_equal(read_over(&s, "{\"runtime\":\"python\",\"level\":\"high\"}"), 0);
    assert_int_equal(spec_finish(&s, &last), -1);
    assert_int_equal(last.id, ERR_LEVEL_UNAVAILABLE);
    spec_done(&s);
    spec_init(&s);
    assert_int_equal(read_over(&s, "{\"runtime\":\"python\",\"resources\":{\"memoryBytes\":33554432,"
                                   "\"storageBytes\":1073741824}}"),
                     0);
    assert_int_equal(spec_finish(&s, &last), -1); /* the workspace is in memory */
    spec_done(&s);
    spec_init(&s);
    assert_int_equal(read_as(&s, "{\"template\":\"x\"}", SPEC_OF_TEMPLATE), -1);
    spec_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(defaults_apply_to_absent_fields),
        RUN(a_request_overrides_its_template),
        RUN(a_stored_spec_is_read_back_and_contains_no_variables),
        RUN(the_driver_of_a_request_overrides_policy_and_template),
        RUN(the_network_of_a_request_replaces_that_of_its_template_and_is_stored),
        RUN(the_operator_can_forbid_a_network_and_open_ranges),
        RUN(a_spec_without_a_driver_gets_the_first_that_the_operator_allows),
        RUN(every_bad_value_is_refused_by_name),
        RUN(js07_variables_and_metadata_are_limited),
        RUN(an_empty_spec_is_one_of_python),
        RUN(an_impossible_spec_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
