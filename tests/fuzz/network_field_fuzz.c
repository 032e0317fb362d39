/* The network of a request: a URL in the first line of the input, and the JSON of the field
 * `network` after it, both from clients.
 *
 * Checked in addition to memory errors: an error names the field; an answer is a valid request with
 * the same rules; a URL that is allowed has a name that may resolve, and one that is refused has a
 * reason. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/json_input.h"
#include "policy/file/network_decision.h"
#include "policy/network_json.h"
#include "service/network_field.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static bool read_network(const char *text, size_t len, struct network_policy *ret)
{
    auto_buf body = { 0 };
    auto_json *j = NULL;
    struct err err = { 0 };

    buf_adds(&body, "{\"network\":");
    buf_add(&body, text, len);
    buf_adds(&body, "}");
    if (json_input_parse(body.data, body.len, &j, &err) < 0 || !json_object_get(j, "network"))
        return false;
    if (network_field_read(json_object_get(j, "network"), ret, &err) == 0)
        return true;
    must(str_starts(err.msg, "network"));
    return false;
}

static void check_round_trip(const struct network_policy *p)
{
    struct network_policy again = { 0 };
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    network_json_write(&w, p);
    must(read_network(out.data, out.len, &again));
    must(network_policy_equal(p, &again));
    network_policy_done(&again);
}

static void check_decision(const struct network_policy *p, const char *url, const struct network_decision *d)
{
    auto_(egress_rules) rules = NULL;
    struct ip_address address;
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    network_decision_write(d, url, &w);
    must(d->host[0] != '\0' && d->port != 0);
    must(d->is_allowed ? d->reason.len == 0 : d->reason.len > 0);
    if (!d->is_allowed || ip_address_parse(d->host, strlen(d->host), &address))
        return;
    must(egress_rules_parse(p->rules, strlen(p->rules), &rules, NULL) == 0);
    must(egress_rules_may_resolve(rules, d->host));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = memchr(text, '\n', size);
    size_t len = end ? (size_t)(end - text) : size;
    auto_free char *url = str_dup_n(text, strnlen(text, len));
    struct network_policy p = { 0 };
    struct network_decision d;

    if (!end || size > 65536 || !read_network(end + 1, size - len - 1, &p))
        return 0;
    check_round_trip(&p);
    if (network_decide(&p, NULL, 0, url, len % 2 ? NULL : "POST", &d, NULL) == 0)
        check_decision(&p, url, &d);
    network_decision_done(&d);
    network_policy_done(&p);
    return 0;
}
