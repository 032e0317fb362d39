/* The field `network`: every form to canonical rules, and back. */
#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/doc/json_input.h"
#include "policy/network_json.h"
#include "service/network_field.h"

static struct err last;

static int read_network(const char *text, struct network_policy *ret)
{
    auto_buf b = { 0 };
    auto_json *j = NULL;

    last = (struct err){ 0 };
    buf_addf(&b, "{\"network\":%s}", text);
    if (json_input_parse(b.data, b.len, &j, &last) < 0)
        return -1;
    return network_field_read(json_object_get(j, "network"), ret, &last);
}

static void write_network(const struct network_policy *p, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 0);
    network_json_write(&w, p);
}

TEST(every_form_becomes_canonical_rules)
{
    static const struct {
        const char *text, *rules;
    } cases[] = {
        { "{\"egress\":[]}", "" },
        { "{}", "" },
        { "{\"allow\":[\"PyPI.org\",\"*.example.org:443\"]}", "allow pypi.org\nallow *.example.org:443" },
        { "{\"allow\":[\"example.org\"],\"deny\":[\"x.example.org:*\"]}", "deny x.example.org:*\nallow example.org" },
        { "{\"allow\":[\"preset:pypi\"]}", "allow preset:pypi" },
        { "{\"egress\":[\"a.example\",{\"deny\":\"*\"},{\"allow\":\"b.example\"}]}",
          "allow a.example\ndeny *\nallow b.example" },
        { "{\"egress\":[{\"allow\":\"api.example:80\",\"methods\":[\"GET\",\"HEAD\"],\"path\":\"/v1/x\"}]}",
          "allow api.example:80 methods=GET,HEAD path=/v1/x" },
        { "{\"egress\":[\"deny a.example:22\",\"allow api.example:80 methods=GET\"]}",
          "deny a.example:22\nallow api.example:80 methods=GET" },
        { "{\"mode\":\"egress\",\"egress\":[\"allow 1.1.1.0/24:5432\"]}", "allow 1.1.1.0/24:5432" },
        { "{\"secrets\":[{\"name\":\"openai\",\"host\":\"api.openai.com\"}]}",
          "secret openai api.openai.com:443 header=Authorization format=Bearer%20{}" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct network_policy p = { 0 };

        if (read_network(cases[i].text, &p) < 0)
            fail_msg("%s: %s", cases[i].text, last.msg);
        assert_int_equal(p.mode, NETWORK_EGRESS);
        if (!str_eq(p.rules, cases[i].rules))
            fail_msg("%s: '%s'", cases[i].text, p.rules);
        network_policy_done(&p);
    }
}

TEST(none_has_no_rules)
{
    struct network_policy p = { NETWORK_EGRESS, NULL };
    auto_buf out = { 0 };

    assert_int_equal(read_network("\"none\"", &p), 0);
    assert_int_equal(p.mode, NETWORK_NONE);
    assert_null(p.rules);
    write_network(&p, &out);
    assert_string_equal(out.data, "\"none\"");
}

TEST(an_answer_is_a_valid_request_with_the_same_rules)
{
    static const char text[] =
        "{\"deny\":[\"files.example.org\"],\"allow\":[\"preset:npm\",\"example.org:80,443,8000-8100\"],"
        "\"secrets\":[{\"name\":\"key-1\",\"host\":\"api.example.org:8443\",\"header\":\"X-Key\","
        "\"methods\":[\"POST\"],\"path\":\"/v1/100%25 a/*\"}]}";
    struct network_policy p = { 0 }, again = { 0 };
    auto_buf out = { 0 }, twice = { 0 };

    assert_int_equal(read_network(text, &p), 0);
    write_network(&p, &out);
    if (read_network(out.data, &again) < 0)
        fail_msg("%s: %s", out.data, last.msg);
    assert_true(network_policy_equal(&p, &again));
    write_network(&again, &twice);
    assert_string_equal(out.data, twice.data);
    assert_non_null(strstr(out.data, "\"deny files.example.org\",\"allow preset:npm\""));
    assert_non_null(strstr(out.data, "{\"name\":\"key-1\",\"host\":\"api.example.org:8443\",\"header\":\"X-Key\","
                                     "\"format\":\"{}\",\"methods\":[\"POST\"],\"path\":\"/v1/100%25%20a/*\"}"));
    network_policy_done(&p);
    network_policy_done(&again);
}

TEST(every_bad_value_is_refused_by_its_path)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "\"all\"", "network: must be \"none\", or an object" },
        { "true", "network: must be \"none\"" },
        { "{\"alow\":[]}", "network.alow: unknown field; did you mean allow?" },
        { "{\"mode\":\"none\"}", "network.mode" },
        { "{\"allow\":\"pypi.org\"}", "network.allow" },
        { "{\"allow\":[7]}", "network.allow[0]: must be a target such as pypi.org" },
        { "{\"allow\":[{\"allow\":\"a.example\"}]}", "network.allow[0]: must be a target such as pypi.org" },
        { "{\"allow\":[\"a.example\",\"http://b.example/\"]}", "network.allow[1]: " },
        { "{\"deny\":[\"127.1\"]}", "network.deny[0]: " },
        { "{\"egress\":[7]}", "network.egress[0]: must be a target" },
        { "{\"egress\":[{}]}", "network.egress[0]: must have either allow or deny" },
        { "{\"egress\":[{\"allow\":\"a.example\",\"deny\":\"b.example\"}]}",
          "network.egress[0]: must have either allow or deny" },
        { "{\"egress\":[{\"allow\":\"a.example\",\"method\":[\"GET\"]}]}", "network.egress[0].method: unknown field" },
        { "{\"egress\":[{\"allow\":\"a.example:80\",\"methods\":[1]}]}", "network.egress[0].methods[0]" },
        { "{\"egress\":[{\"allow\":\"a.example:443\",\"path\":\"/v1\"}]}", "network.egress[0]: " },
        { "{\"egress\":[\"secret a a.example:443 header=X format={}\"]}", "network.egress[0]: not a rule" },
        { "{\"egress\":[\"allow a.example\\nallow b.example\"]}", "network.egress[0]: a rule is one line" },
        { "{\"allow\":[],\"egress\":[]}", "network: allow and deny are the short form of egress" },
        { "{\"secrets\":[{\"name\":\"a\"}]}", "network.secrets[0]: must have name and host" },
        { "{\"secrets\":[{\"name\":\"a b\",\"host\":\"a.example\"}]}", "network.secrets[0]: " },
        { "{\"secrets\":[\"a\"]}", "network.secrets[0]: must be an object" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct network_policy p = { 0 };

        if (read_network(cases[i].text, &p) == 0)
            fail_msg("%s was read", cases[i].text);
        if (strncmp(last.msg, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("%s: '%s'", cases[i].text, last.msg);
    }
}

TEST(js07_the_number_of_rules_is_bounded)
{
    struct network_policy p = { 0 };
    auto_buf text = { 0 };

    buf_adds(&text, "{\"allow\":[");
    for (int i = 0; i < 257; i++)
        buf_addf(&text, "%s\"h%d.example\"", i ? "," : "", i);
    buf_adds(&text, "]}");
    assert_int_equal(read_network(text.data, &p), -1);
    buf_clear(&text);
    buf_adds(&text, "{\"allow\":["); /* each list is short enough, both together are not */
    for (int i = 0; i < 200; i++)
        buf_addf(&text, "%s\"h%d.example\"", i ? "," : "", i);
    buf_adds(&text, "],\"deny\":[");
    for (int i = 0; i < 200; i++)
        buf_addf(&text, "%s\"d%d.example\"", i ? "," : "", i);
    buf_adds(&text, "]}");
    assert_int_equal(read_network(text.data, &p), -1);
    assert_int_equal(last.id, ERR_EGRESS_RULE);
}

TEST(a_closed_address_is_refused_unless_the_operator_opened_it)
{
    static const struct {
        const char *text, *range; /* NULL: accepted */
    } cases[] = {
        { "{\"allow\":[\"10.0.0.0/8\"]}", "private" },
        { "{\"allow\":[\"127.0.0.1:80\"]}", "loopback" },
        { "{\"allow\":[\"169.254.169.254\"]}", "metadata" },
        { "{\"allow\":[\"[::1]:80\"]}", "loopback" },
        { "{\"allow\":[\"[::ffff:10.0.0.1]:80\"]}", "closed" },
        { "{\"allow\":[\"1.1.1.1\"]}", NULL },
        { "{\"allow\":[\"0.0.0.0/0\"]}", NULL }, /* what is closed in it stays closed */
        { "{\"deny\":[\"10.0.0.0/8\"]}", NULL },
        { "{\"allow\":[\"192.168.7.1:80\"]}", NULL }, /* opened below */
        { "{\"allow\":[\"192.168.0.0/16\"]}", "private" },
        { "\"none\"", NULL },
    };
    struct ip_prefix open;

    assert_true(ip_prefix_parse("192.168.7.0/24", 14, &open));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct network_policy p = { 0 };

        if (read_network(cases[i].text, &p) < 0)
            fail_msg("%s: %s", cases[i].text, last.msg);
        bool refused = network_field_check_addresses(&p, &open, 1, &last) < 0;
        if (refused != (cases[i].range != NULL))
            fail_msg("%s: %s", cases[i].text, refused ? last.msg : "accepted");
        if (refused && (!strstr(last.msg, cases[i].range) || !strstr(last.msg, "egress.openRanges")))
            fail_msg("%s: '%s'", cases[i].text, last.msg);
        network_policy_done(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_form_becomes_canonical_rules),
        RUN(none_has_no_rules),
        RUN(an_answer_is_a_valid_request_with_the_same_rules),
        RUN(every_bad_value_is_refused_by_its_path),
        RUN(js07_the_number_of_rules_is_bounded),
        RUN(a_closed_address_is_refused_unless_the_operator_opened_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
