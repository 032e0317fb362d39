/* cove pool: ls, info, set, rm. `set` creates a pool or changes the given values, so that a script
 * can run it twice. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"
#include "client/cli/report.h"

#include <inttypes.h>
#include <stdio.h>

/* --- printing --- */

static const char *ctl_pool_number_text(const json_t *object, const char *key, char buf[24])
{
    snprintf(buf, 24, "%" PRIu64, ctl_field_number(object, key));
    return buf;
}

static const char *ctl_pool_hit_rate_text(const json_t *status, char buf[24])
{
    const json_t *rate = json_object_get(status, "hitRate");

    if (!json_is_number(rate))
        return "-";
    snprintf(buf, 24, "%.1f %%", json_number_value(rate) * 100);
    return buf;
}

static const char *ctl_pool_millis_text(const json_t *status, const char *key, char buf[24])
{
    if (!json_object_get(status, key))
        return "-";
    snprintf(buf, 24, "%.2f ms", json_number_value(json_object_get(status, key)));
    return buf;
}

static const char *ctl_pool_duration_text(const json_t *object, const char *key, char buf[24])
{
    uint64_t ms = ctl_field_number(object, key);

    if (ms == 0)
        return "never";
    if (ms % 3600000 == 0)
        snprintf(buf, 24, "%" PRIu64 "h", ms / 3600000);
    else if (ms % 60000 == 0)
        snprintf(buf, 24, "%" PRIu64 "m", ms / 60000);
    else
        snprintf(buf, 24, "%.10gs", (double)ms / 1000);
    return buf;
}

static void ctl_pool_print_scaling(const json_t *p)
{
    const json_t *a = json_object_get(p, "autoscale");
    char t[24];

    if (json_is_true(json_object_get(a, "enabled")))
        ctl_printf("scaling    target hit rate %.1f %%, shrinks after %s",
                   json_number_value(json_object_get(a, "targetHitRate")) * 100,
                   ctl_pool_duration_text(a, "scaleDownDelayMs", t));
    else
        ctl_printf("scaling    none: always %" PRIu64, ctl_field_number(p, "min"));
}

static void ctl_pool_print_zygote(const json_t *status)
{
    const json_t *z = json_object_get(status, "zygote");

    if (!z || str_eq(ctl_field_text(z, "state"), "none"))
        return;
    ctl_printf("zygote     %s%s%s, %" PRIu64 " forks of %" PRIu64 " joins, started %" PRIu64 " times",
               ctl_field_text(z, "state"), *ctl_field_text(z, "message") ? ": " : "", ctl_field_text(z, "message"),
               ctl_field_number(z, "members"), ctl_field_number(z, "joins"), ctl_field_number(z, "started"));
}

static void ctl_pool_print_recycled(const json_t *status)
{
    const json_t *r = json_object_get(status, "recycled");
    json_t *destroyed = json_object_get(r, "destroyed"), *n;
    const char *why;

    if (!r)
        return;
    ctl_printf("recycled   %" PRIu64 " wait for their tenants; %" PRIu64 " recycled, %" PRIu64 " claimed",
               ctl_field_number(r, "ready"), ctl_field_number(r, "total"), ctl_field_number(r, "claims"));
    json_object_foreach(destroyed, why, n)
        ctl_printf("           %" JSON_INTEGER_FORMAT " destroyed: %s", json_integer_value(n), why);
}

static int ctl_pool_print(struct ctl *c, const json_t *p)
{
    const json_t *s = json_object_get(p, "status");
    char a[24], b[24];

    if (c->json)
        return ctl_print_json(p);
    ctl_printf("%s  %s%s%s", ctl_field_text(p, "name"), ctl_field_text(s, "phase"),
               *ctl_field_text(s, "message") ? ": " : "", ctl_field_text(s, "message"));
    ctl_printf("template   %s", ctl_field_text(p, "template"));
    ctl_printf("holds      %" PRIu64 " ready, %" PRIu64 " being made, target %" PRIu64 " (%" PRIu64 " to %" PRIu64 ")",
               ctl_field_number(s, "ready"), ctl_field_number(s, "starting"), ctl_field_number(s, "target"),
               ctl_field_number(p, "min"), ctl_field_number(p, "max"));
    ctl_pool_print_scaling(p);
    ctl_printf("replaced   unused after %s, always after %s", ctl_pool_duration_text(p, "ttlMs", a),
               ctl_pool_duration_text(p, "maxAgeMs", b));
    ctl_printf("claims     %" PRIu64 ": %" PRIu64 " ready (%s), %" PRIu64 " unfinished, %" PRIu64 " empty pool",
               ctl_field_number(s, "claims"), ctl_field_number(s, "hits"), ctl_pool_hit_rate_text(s, a),
               ctl_field_number(s, "partial"), ctl_field_number(s, "misses"));
    ctl_printf("times      claim %s, creation %s", ctl_pool_millis_text(s, "claimMs", a),
               ctl_pool_millis_text(s, "refillMs", b));
    ctl_pool_print_recycled(s);
    ctl_pool_print_zygote(s);
    return 0;
}

static int ctl_pool_list(struct ctl *c, struct err *err)
{
    struct ctl_table table = { 0 };
    AUTO_JSON *answer = NULL;
    json_t *p;
    size_t i;

    if (ctl_require_args(c, 0, 0, "pool ls", err) < 0 ||
        client_json(c->client, "GET", "/v1/pools", NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_table_row(&table, "name", "template", "state", "ready", "target", "min", "max", "claims", "hits", "claim");
    json_array_foreach(json_object_get(answer, "items"), i, p)
    {
        const json_t *s = json_object_get(p, "status");
        char n[5][24], rate[24], time[24];

        ctl_table_row(&table, ctl_field_text(p, "name"), ctl_field_text(p, "template"), ctl_field_text(s, "phase"),
                      ctl_pool_number_text(s, "ready", n[0]), ctl_pool_number_text(s, "target", n[1]),
                      ctl_pool_number_text(p, "min", n[2]), ctl_pool_number_text(p, "max", n[3]),
                      ctl_pool_number_text(s, "claims", n[4]), ctl_pool_hit_rate_text(s, rate),
                      ctl_pool_millis_text(s, "claimMs", time));
    }
    return ctl_table_print(&table);
}

static int ctl_pool_info(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 1, 1, "pool info NAME", err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/pools/%s", c->args.rest[0]);
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    return ctl_pool_print(c, answer);
}

/* --- set and rm --- */

static int ctl_pool_set_count(const struct ctl *c, int opt, json_t *body, const char *key, struct err *err)
{
    const struct arg *a = args_find(&c->args, opt);
    uint64_t v;

    if (!a)
        return 0;
    if (!str_to_u64(a->value, UINT32_MAX, &v))
        return err_set(err, ERR_USAGE, "--%s %.40s: must be a number of sandboxes", a->opt->name, a->value);
    json_object_set_new(body, key, json_integer((json_int_t)v));
    return 0;
}

static int ctl_pool_set_time(const struct ctl *c, int opt, json_t *body, const char *key, struct err *err)
{
    const struct arg *a = args_find(&c->args, opt);
    uint64_t ms = 0;

    if (!a)
        return 0;
    if ((!str_eq(a->value, "0") && !str_to_ms(a->value, &ms)) || ms > INT64_MAX)
        return err_set(err, ERR_USAGE, "--%s %.40s: must be a time such as 90s or 2h", a->opt->name, a->value);
    json_object_set_new(body, key, json_integer((json_int_t)ms));
    return 0;
}

static int ctl_pool_set_rate(const struct ctl *c, json_t *body, struct err *err)
{
    const struct arg *a = args_find(&c->args, OPT_HIT_RATE);
    uint64_t permille;

    if (!a)
        return 0;
    if (!str_to_millis(a->value, &permille) || permille < 500 || permille > 999)
        return err_set(err, ERR_USAGE, "--hit-rate %.40s: must be from 0.5 to 0.999", a->value);
    json_object_set_new(body, "targetHitRate", json_real((double)permille / 1000));
    return 0;
}

static int ctl_pool_read_changes(const struct ctl *c, json_t *body, struct err *err)
{
    AUTO_JSON *scale = json_object();
    bool grows = args_find(&c->args, OPT_AUTOSCALE) != NULL, fixed = args_find(&c->args, OPT_FIXED) != NULL;
    bool again = args_find(&c->args, OPT_RECYCLE) != NULL, never = args_find(&c->args, OPT_NO_RECYCLE) != NULL;

    if (grows && fixed)
        return err_set(err, ERR_USAGE, "--autoscale and --fixed exclude each other");
    if (again && never)
        return err_set(err, ERR_USAGE, "--recycle and --no-recycle exclude each other");
    ctl_set_text(c, OPT_TEMPLATE, body, "template");
    if (ctl_pool_set_count(c, OPT_MIN, body, "min", err) < 0 || ctl_pool_set_count(c, OPT_MAX, body, "max", err) < 0 ||
        ctl_pool_set_time(c, OPT_TTL, body, "ttlMs", err) < 0 ||
        ctl_pool_set_time(c, OPT_MAX_AGE, body, "maxAgeMs", err) < 0 || ctl_pool_set_rate(c, scale, err) < 0 ||
        ctl_pool_set_time(c, OPT_SCALE_DOWN, scale, "scaleDownDelayMs", err) < 0)
        return -1;
    if (grows || fixed)
        json_object_set_new(scale, "enabled", json_boolean(grows));
    if (again || never)
        json_object_set_new(body, "recycle", json_boolean(again));
    if (json_object_size(scale))
        json_object_set(body, "autoscale", scale);
    if (!json_object_size(body))
        return err_set(err, ERR_USAGE,
                       "nothing to set; add --template, --min, --max or another flag of 'cove pool --help'");
    return 0;
}

static int ctl_pool_set(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;
    const char *name = c->args.nrest ? c->args.rest[0] : "";

    if (ctl_require_args(c, 1, 1, "pool set [FLAGS] NAME", err) < 0 || ctl_pool_read_changes(c, body, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/pools/%s", name), *text = json_dumps(body, JSON_COMPACT);
    int rc = client_json(c->client, "PATCH", path, text, &answer, err);
    if (rc < 0 && err->id == ERR_MISSING && json_object_get(body, "template")) {
        *err = (struct err){ 0 };
        json_object_set_new(body, "name", json_string(name));
        auto_free char *whole = json_dumps(body, JSON_COMPACT);
        rc = client_json(c->client, "POST", "/v1/pools", whole, &answer, err);
    } else if (rc < 0 && err->id == ERR_MISSING) {
        return err_set(err, ERR_MISSING, "no pool named '%.63s'; to create it, add --template NAME", name);
    }
    return rc < 0 ? -1 : ctl_pool_print(c, answer);
}

static int ctl_pool_remove(struct ctl *c, struct err *err)
{
    if (ctl_require_args(c, 1, 1, "pool rm NAME", err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/pools/%s", c->args.rest[0]);
    if (client_json(c->client, "DELETE", path, NULL, NULL, err) < 0)
        return -1;
    if (c->json || c->quiet)
        return 0;
    AUTO_JSON *left = NULL;
    struct err none = { 0 };
    bool own = client_json(c->client, "GET", path, NULL, &left, &none) ==
               0; /* the server's default pool applies again */
    report_note(own ? "pool %s has the defaults of the server again; sandboxes already taken from it keep running"
                    : "pool %s is removed; sandboxes already taken from it keep running",
                c->args.rest[0]);
    return 0;
}

int ctl_pool(struct ctl *c, const char *what, struct err *err)
{
    static const struct ctl_subcommand all[] = {
        { "ls", ctl_pool_list }, { "info", ctl_pool_info }, { "set", ctl_pool_set }, { "rm", ctl_pool_remove }, { NULL }
    };

    return ctl_run_subcommand(c, all, "pool", what, err);
}
