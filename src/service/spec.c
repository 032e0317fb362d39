#include "service/spec.h"

#include "service/custom_policy.h"
#include "policy/network_json.h"
#include "service/network_field.h"
#include "service/templates.h"

#include "core/base/mem.h"
#include "core/base/str.h"

const char *const idle_action_names[] = { "end", "pause", NULL };

/* Limits that a request may set, in "resources" and at its top level. */
static const enum limit spec_resource_limits[] = { LIMIT_CPU,  LIMIT_MEMORY, LIMIT_WORKSPACE,
                                                   LIMIT_PIDS, LIMIT_TMP,    LIMIT_SHM };
/* Of these, the limits that are written only if they were given. */
#define SPEC_RARE_LIMITS (1ull << LIMIT_TMP | 1ull << LIMIT_SHM)
static const enum limit spec_time_limits[] = { LIMIT_WALL, LIMIT_LIFETIME, LIMIT_IDLE };

void spec_init(struct spec *s)
{
    *s = (struct spec){ .level = LEVEL_STANDARD };
    limits_default(&s->limits);
}

void spec_env_free(char **env)
{
    for (size_t i = 0; env && env[i]; i++) {
        explicit_bzero(env[i], strlen(env[i]));
        free(env[i]);
    }
    free(env);
}

void spec_done(struct spec *s)
{
    spec_env_free(s->env);
    json_decref(s->metadata);
    free(s->policy);
    free(s->preload);
    network_policy_done(&s->network);
    *s = (struct spec){ 0 };
}

/* --- variables --- */

static bool spec_env_same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n + 1) == 0;
}

static void spec_put_env(char ***env, size_t *nenv, char *pair)
{
    for (size_t i = 0; i < *nenv; i++)
        if (spec_env_same_name((*env)[i], pair)) {
            free((*env)[i]);
            (*env)[i] = pair;
            return;
        }
    *env = mem_resize(*env, *nenv + 2, sizeof(char *));
    (*env)[(*nenv)++] = pair;
    (*env)[*nenv] = NULL;
}

static int spec_check_variable(const char *path, const char *name, const json_t *value, struct err *err)
{
    if (!policy_env_name_valid(name, strlen(name))) {
        err_set(err, ERR_INVALID, "%s: '%.40s': the name of a variable may have letters, digits and '_' only", path,
                name);
        err_sanitize(err);
        return -1;
    }
    if (!json_is_string(value))
        return err_set(err, ERR_INVALID, "%s.%.60s: the value must be a string", path, name);
    if (json_string_length(value) > SPEC_ENV_TEXT)
        return err_set(err, ERR_INVALID, "%s.%.60s: the value is longer than %llu bytes", path, name, SPEC_ENV_TEXT);
    return 0;
}

int spec_read_env(const json_t *object, const char *path, char ***env, size_t *nenv, struct err *err)
{
    const char *name;
    json_t *value;
    size_t sum = 0;

    if (json_object_size(object) + *nenv > SPEC_ENV_MAX)
        return err_set(err, ERR_INVALID, "%s: more than %d variables", path, SPEC_ENV_MAX);
    for (size_t i = 0; i < *nenv; i++)
        sum += strlen((*env)[i]) + 4;
    json_object_foreach((json_t *)object, name, value)
    {
        if (spec_check_variable(path, name, value, err) < 0)
            return -1;
        sum += strlen(name) + json_string_length(value) + 5;
    }
    if (sum > SPEC_ENV_SUM)
        return err_set(err, ERR_INVALID, "%s: the variables have %zu bytes, the maximum is %llu", path, sum,
                       SPEC_ENV_SUM);
    json_object_foreach((json_t *)object, name, value)
        spec_put_env(env, nenv, str_printf("%s=%s", name, json_string_value(value)));
    return 0;
}

/* --- metadata --- */

int spec_merge_metadata(json_t **metadata, const json_t *pairs, struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)pairs, key, value)
    {
        if (!*key || strlen(key) > SPEC_METADATA_KEY || strchr(key, '='))
            return err_set(err, ERR_INVALID, "metadata: a key must have 1 to %d bytes and no '='", SPEC_METADATA_KEY);
        if (!json_is_null(value) && (!json_is_string(value) || json_string_length(value) > SPEC_METADATA_VALUE))
            return err_set(err, ERR_INVALID, "metadata: a value must be a string of at most %d bytes",
                           SPEC_METADATA_VALUE);
    }
    if (!*metadata)
        *metadata = json_object();
    json_object_foreach((json_t *)pairs, key, value)
    {
        if (json_is_null(value))
            json_object_del(*metadata, key);
        else
            json_object_set(*metadata, key, value);
    }
    if (json_object_size(*metadata) > SPEC_METADATA_MAX)
        return err_set(err, ERR_INVALID, "metadata: more than %d pairs", SPEC_METADATA_MAX);
    return 0;
}

static int spec_read_metadata(struct spec *s, const json_t *object, struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value) if (json_is_null(value)) return err_set(
        err, ERR_INVALID, "metadata.%.60s: must be a string", key);
    return spec_merge_metadata(&s->metadata, object, err);
}

char *spec_metadata_json(const struct spec *s)
{
    return s->metadata ? json_dumps(s->metadata, JSON_COMPACT | JSON_SORT_KEYS) : str_dup("{}");
}

/* --- limits --- */

const char *spec_limit_field(enum limit l)
{
    return l == LIMIT_WORKSPACE ? "storageBytes" : limit_info(l)->name;
}

static int spec_read_limits(struct spec *s, const json_t *object, const char *path, const enum limit *limits, size_t n,
                            struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct limit_info *info = limit_info(limits[i]);
        bool found;

        if (json_input_u64(object, path, spec_limit_field(limits[i]), info->min, info->max, &s->limits.v[limits[i]],
                           &found, err) < 0)
            return -1;
        if (found)
            s->explicit_limits |= 1ull << limits[i];
    }
    return 0;
}

static int spec_read_resources(struct spec *s, const json_t *object, struct err *err)
{
    static const char *const names[] = { "cpuMillis", "memoryBytes", "storageBytes", "pids",
                                         "tmpBytes",  "shmBytes",    "cpuPinning",   NULL };

    if (json_input_require_known_fields(object, "resources.", names, err) < 0 ||
        spec_read_limits(s, object, "resources.", spec_resource_limits, ARRAY_LEN(spec_resource_limits), err) < 0)
        return -1;
    return json_input_bool(object, "resources.", "cpuPinning", &s->cpu_pinning, err);
}

/* --- preloads --- */

static bool spec_is_module_name(const char *s)
{
    for (;;) {
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

        if (n == 0 || (s[0] >= '0' && s[0] <= '9'))
            return false;
        if (s[n] != '.')
            return s[n] == '\0';
        s += n + 1;
    }
}

static int spec_read_preload(struct spec *s, const json_t *object, struct err *err)
{
    const json_t *list = json_object_get(object, "preload"), *name;
    auto_buf text = { 0 };
    size_t i;

    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > SPEC_PRELOAD_MAX)
        return err_set(err, ERR_INVALID, "preload: must be a list of at most %d module names", SPEC_PRELOAD_MAX);
    buf_adds(&text, "");
    json_array_foreach(list, i, name)
    {
        if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name) ||
            !spec_is_module_name(json_string_value(name)))
            return err_set(err, ERR_INVALID, "preload: entry %zu is not a module name", i + 1);
        buf_addf(&text, "%s%s", i ? "," : "", json_string_value(name));
    }
    if (text.len > SPEC_PRELOAD_SUM)
        return err_set(err, ERR_INVALID, "preload: the names have %zu bytes, the maximum is %d", text.len,
                       SPEC_PRELOAD_SUM);
    free(s->preload);
    s->preload = str_dup(text.len ? text.data : "");
    return 0;
}

/* Sandboxes of level standard share a zygote. A zygote for every custom policy would be too
 * expensive; a template with a policy gets one only if it names modules to preload. */
static int spec_choose_zygote(struct spec *s, struct err *err)
{
    s->zygote = (struct zygote_spec){ 0 };
    if (!str_eq(s->runtime, "python"))
        return s->preload ? err_set(err, ERR_INVALID,
                                    "preload: only templates of runtime python may have it; add runtime python")
                          : 0;
    if (s->level == LEVEL_STANDARD || s->preload)
        s->zygote = (struct zygote_spec){ "python", s->preload ? s->preload : template_python_preload };
    return 0;
}

/* --- the whole spec --- */

static int spec_unknown_runtime_error(const char *name, struct err *err)
{
    if (template_name_is_builtin(name))
        return template_as_runtime_error(err, name);
    (void)language_unknown_error("runtime", name, err);
    err_sanitize(err);
    return -1;
}

int spec_check_name(const char *name, struct err *err)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789",
                      other[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(name);

    if (len == 0 || len > SPEC_NAME_MAX || !strchr(first, name[0]) || strspn(name, other) != len)
        return err_set(err, ERR_INVALID,
                       "name: must be 1 to %d lower-case letters, digits, '.', '_' and '-', and begin with a letter or "
                       "a digit",
                       SPEC_NAME_MAX);
    if (id_valid(name, "sb"))
        return err_set(err, ERR_INVALID, "name: has the form of an id; choose another name");
    return 0;
}

static int spec_read_sandbox_name(struct spec *s, const json_t *object, struct err *err)
{
    const char *name = NULL;

    if (json_input_text(object, "", "name", 1, SPEC_NAME_MAX, &name, err) < 0 ||
        (name && spec_check_name(name, err) < 0))
        return -1;
    if (name)
        (void)str_copy(s->name, sizeof(s->name), name);
    return 0;
}

static int spec_read_names(struct spec *s, const json_t *object, struct err *err)
{
    static const char *const levels[] = { "standard", "high", "custom", NULL };
    unsigned level = s->level, idle = s->idle_action;
    const char *runtime = NULL;

    if (json_input_text(object, "", "runtime", 1, sizeof(s->runtime) - 1, &runtime, err) < 0 ||
        json_input_enum(object, "", "level", levels, &level, err) < 0 ||
        json_input_enum(object, "", "idleAction", idle_action_names, &idle, err) < 0)
        return -1;
    if (runtime) {
        const struct language *rt = language_by_name(runtime);

        if (!rt)
            return spec_unknown_runtime_error(runtime, err);
        str_copy(s->runtime, sizeof(s->runtime), rt->name);
    }
    s->level = (enum level)level;
    s->idle_action = (enum idle_action)idle;
    return 0;
}

static int spec_read_driver(struct spec *s, const json_t *object, struct err *err)
{
    const char *driver = NULL;

    if (json_input_text(object, "", "driver", 1, SPEC_NAME_MAX, &driver, err) < 0)
        return -1;
    if (driver && !driver_parse(driver, &s->driver)) {
        (void)driver_unknown_error("driver", driver, err);
        err_sanitize(err);
        return -1;
    }
    s->has_driver = s->has_driver || driver;
    return 0;
}

/* The network of a request replaces that of its template as a whole. */
static int spec_read_network(struct spec *s, const json_t *object, struct err *err)
{
    const json_t *network = json_object_get(object, "network");
    struct network_policy given;

    if (!network)
        return 0;
    if (network_field_read(network, &given, err) < 0)
        return -1;
    network_policy_done(&s->network);
    s->network = given;
    return 0;
}

/* The policy is read first: other fields override it. */
static int spec_read_policy(struct spec *s, const json_t *object, char **ret_details, struct err *err)
{
    json_t *document = NULL;
    bool said = json_object_get(object, "level") && s->level != LEVEL_CUSTOM;

    if (json_input_object(object, "", "policy", &document, err) < 0)
        return -1;
    if (document && said)
        return err_set(err, ERR_INVALID, "level: %s cannot have a policy; use custom or omit the level",
                       level_name(s->level));
    if (document)
        return custom_policy_read(s, document, ret_details, err);
    if (s->level == LEVEL_CUSTOM && !s->policy)
        return err_set(err, ERR_INVALID, "policy: level custom requires a policy");
    if (said && s->policy)
        return err_set(err, ERR_INVALID, "level: the template has a policy, so the level is custom; omit the level");
    return 0;
}

int spec_read(struct spec *s, const json_t *object, enum spec_of of, char **ret_details, struct err *err)
{
    static const char *const names[] = { "runtime",       "level",      "policy",    "resources",
                                         "env",           "metadata",   "timeoutMs", "lifetimeMs",
                                         "idleTimeoutMs", "idleAction", "template",  "preload",
                                         "name",          "driver",     "network",   NULL };
    json_t *sub[3] = { NULL };
    char *details = NULL;

    if (of == SPEC_OF_TEMPLATE && json_object_get(object, "template"))
        return err_set(err, ERR_INVALID, "template: a template cannot be based on another; omit this field");
    if (of == SPEC_OF_SANDBOX && json_object_get(object, "preload"))
        return err_set(err, ERR_INVALID, "preload: only a template may have it; name a template that does");
    if (of == SPEC_OF_TEMPLATE && json_object_get(object, "name"))
        return err_set(err, ERR_INVALID, "name: only a sandbox has it; omit this field");
    if (json_input_require_known_fields(object, "", names, err) < 0 || spec_read_names(s, object, err) < 0 ||
        spec_read_sandbox_name(s, object, err) < 0)
        return -1;
    int rc = spec_read_policy(s, object, &details, err);
    if (ret_details)
        *ret_details = take_ptr(&details);
    free(details);
    if (rc < 0)
        return -1;
    if (spec_read_limits(s, object, "", spec_time_limits, ARRAY_LEN(spec_time_limits), err) < 0 ||
        json_input_object(object, "", "resources", &sub[0], err) < 0 ||
        json_input_object(object, "", "env", &sub[1], err) < 0 ||
        json_input_object(object, "", "metadata", &sub[2], err) < 0)
        return -1;
    if (spec_read_driver(s, object, err) < 0 || spec_read_network(s, object, err) < 0 ||
        spec_read_preload(s, object, err) < 0)
        return -1;
    if (sub[0] && spec_read_resources(s, sub[0], err) < 0)
        return -1;
    if (sub[1] && spec_read_env(sub[1], "env", &s->env, &s->nenv, err) < 0)
        return -1;
    return sub[2] ? spec_read_metadata(s, sub[2], err) : 0;
}

int spec_read_template(struct spec *s, const char *name, const struct err *reply, const struct store_template *row,
                       struct err *err)
{
    auto_json *object = NULL;

    if (reply) {
        *err = *reply;
        return -1;
    }
    if (json_input_parse(row->spec_json, strlen(row->spec_json), &object, err) < 0 ||
        spec_read(s, object, SPEC_OF_TEMPLATE, NULL, err) < 0)
        return err_wrap(err, "template %s", name);
    return 0;
}

int spec_finish(struct spec *s, struct err *err)
{
    if (!s->runtime[0])
        (void)str_copy(s->runtime, sizeof(s->runtime), "python");
    if (s->level == LEVEL_HIGH)
        return err_set(err, ERR_LEVEL_UNAVAILABLE,
                       "level: high requires a driver with a second kernel (gVisor or a microVM), which this server "
                       "does not have; use standard");
    limits_fit(&s->limits, s->explicit_limits);
    return spec_choose_zygote(s, err) < 0 ? -1 : limits_check(&s->limits, err);
}

/* The manager measures idleness: file requests count as use, and the sandbox may be paused instead
 * of ended. */
void spec_fill_sandbox_spec(const struct spec *s, struct sandbox_spec *ret)
{
    const struct language *rt = language_by_name(s->runtime);

    *ret = (struct sandbox_spec){ .driver = s->driver,
                                  .network = s->network,
                                  .level = s->level,
                                  .policy = s->policy ? s->policy_name : NULL,
                                  .profile = s->has_profile ? s->profile
                                             : rt           ? rt->profile
                                                            : PROFILE_BASE,
                                  .grants = s->grants,
                                  .limits = s->limits,
                                  .env = (const char *const *)s->env };
    memcpy(ret->deny, s->deny, sizeof(ret->deny));
    ret->zygote = s->zygote.language ? &s->zygote : NULL;
    ret->limits.v[LIMIT_IDLE] = 0;
}

const char *spec_limit_name(enum limit l)
{
    static const char *const in_resources[] = {
        [LIMIT_CPU] = "resources.cpuMillis",          [LIMIT_MEMORY] = "resources.memoryBytes",
        [LIMIT_WORKSPACE] = "resources.storageBytes", [LIMIT_PIDS] = "resources.pids",
        [LIMIT_TMP] = "resources.tmpBytes",           [LIMIT_SHM] = "resources.shmBytes"
    };

    return l < ARRAY_LEN(in_resources) && in_resources[l] ? in_resources[l] : limit_info(l)->name;
}

void spec_json(const struct spec *s, struct jsonw *w)
{
    jsonw_kstr(w, "runtime", s->runtime);
    jsonw_kstr(w, "driver", driver_name(s->driver));
    jsonw_key(w, "network");
    network_json_write(w, &s->network);
    jsonw_kstr(w, "level", level_name(s->level));
    if (s->policy)
        jsonw_kraw(w, "policy", s->policy);
    jsonw_kobject(w, "resources");
    for (size_t i = 0; i < ARRAY_LEN(spec_resource_limits); i++) {
        enum limit l = spec_resource_limits[i];

        if (!(SPEC_RARE_LIMITS >> l & 1) || s->explicit_limits >> l & 1)
            jsonw_ku64(w, spec_limit_field(l), s->limits.v[l]);
    }
    jsonw_kbool(w, "cpuPinning", s->cpu_pinning);
    jsonw_end_object(w);
    for (size_t i = 0; i < ARRAY_LEN(spec_time_limits); i++)
        jsonw_ku64(w, spec_limit_field(spec_time_limits[i]), s->limits.v[spec_time_limits[i]]);
    jsonw_kstr(w, "idleAction", idle_action_names[s->idle_action]);
}
