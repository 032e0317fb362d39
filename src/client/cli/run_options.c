#include "client/cli/run_options.h"

#include "client/cli/run_network.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/drivers.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>

#define ENV_MAX 512             /* variables */
#define ENV_TEXT_MAX (32 * KIB) /* bytes of one variable */
#define PATH_TEXT_MAX 4000
#define DST_MAX 250
#define SLACK_MS 60000u /* lifetime beyond the timeout of the execution: time for setup and teardown */
#define TTY_WALL_MS 3600000u

int run_options_parse_env(const char *text, char **ret, struct err *err)
{
    size_t name = strcspn(text, "=");

    if (name == 0 || (!isalpha((unsigned char)text[0]) && text[0] != '_'))
        return err_set(err, ERR_INVALID, "--env %.60s: a variable name begins with a letter or '_'", text);
    for (size_t i = 0; i < name; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_')
            return err_set(err, ERR_INVALID, "--env %.60s: a variable name has only letters, digits and '_'", text);
    if (strlen(text) > ENV_TEXT_MAX)
        return err_set(err, ERR_INVALID, "--env %.*s: the value is longer than 32K", (int)min_size(name, 60), text);
    if (text[name] == '=') {
        *ret = str_dup(text);
        return 0;
    }
    const char *value = getenv(text);
    if (!value)
        return err_set(err, ERR_INVALID,
                       "--env %.60s: not set in your environment; write %.60s=VALUE, or export it first", text, text);
    if (strlen(value) > ENV_TEXT_MAX)
        return err_set(err, ERR_INVALID, "--env %.60s: the value is longer than 32K", text);
    *ret = str_printf("%s=%s", text, value);
    return 0;
}

int run_options_parse_cwd(const char *text, char **ret, struct err *err)
{
    if (!*text || strlen(text) > PATH_TEXT_MAX)
        return err_set(err, ERR_INVALID, "--cwd: the path is empty or too long");
    *ret = text[0] == '/' ? str_dup(text) : str_printf("/workspace/%s", text);
    return 0;
}

static int run_options_add_bind(struct run_options *r, const char *src, size_t len, const char *dst, const char *flag,
                                struct err *err)
{
    size_t n = strlen(dst);

    while (n > 1 && dst[n - 1] == '/')
        n--;
    if (len == 0 || len > PATH_TEXT_MAX)
        return err_set(err, ERR_INVALID, "--%s: the source is empty or too long", flag);
    auto_free char *to = str_dup_n(dst, n);
    if (n > DST_MAX || !policy_path_is_plain(to))
        return err_set(err, ERR_BIND_TARGET, "--%s: '%.100s' is not a plain absolute path", flag, dst);
    if (r->nbinds == RUN_OPTIONS_BINDS_MAX)
        return err_set(err, ERR_INVALID, "--%s: too many mounts; a sandbox has at most %d", flag,
                       RUN_OPTIONS_BINDS_MAX);
    r->binds[r->nbinds].src = str_dup_n(src, len);
    r->binds[r->nbinds++].dst = take_ptr(&to);
    return 0;
}

static int run_options_read_bind(struct run_options *r, const char *text, struct err *err)
{
    const char *colon = strrchr(text, ':');

    if (!colon || colon[1] != '/')
        return err_set(err, ERR_INVALID, "--bind-ro %.80s: write SRC:DST, for example --bind-ro %.*s:/mnt/data", text,
                       (int)min_u64(colon ? (size_t)(colon - text) : strlen(text), 60), text);
    return run_options_add_bind(r, text, (size_t)(colon - text), colon + 1, "bind-ro", err);
}

static int run_options_read_workspace(struct run_options *r, const char *text, struct err *err)
{
    size_t len = strlen(text);

    r->cow = str_ends(text, ":cow");
    if (r->cow)
        len -= strlen(":cow");
    if (len == 0 || len > PATH_TEXT_MAX)
        return err_set(err, ERR_INVALID, "--workspace: the directory is empty or too long");
    free(r->workspace);
    r->workspace = str_dup_n(text, len);
    r->workspace_flag = true;
    return 0;
}

/* SRC:DST[:ro] as in Docker. A directory that the sandbox may write to is always /workspace. */
static int run_options_read_volume(struct run_options *r, const char *text, struct err *err)
{
    bool read_only = str_ends(text, ":ro");
    size_t len = strlen(text) - (read_only || str_ends(text, ":rw") ? strlen(":ro") : 0);
    auto_free char *pair = str_dup_n(text, len);
    char *colon = strrchr(pair, ':');

    if (!colon || colon[1] != '/')
        return err_set(err, ERR_INVALID, "--volume %.80s: write SRC:DST:ro, or DIR:/workspace", text);
    if (read_only)
        return run_options_add_bind(r, pair, (size_t)(colon - pair), colon + 1, "volume", err);
    if (!str_eq(colon + 1, "/workspace"))
        return err_set(err, ERR_INVALID,
                       "--volume %.80s: a sandbox writes only to /workspace; write %.*s:/workspace, or add ':ro'", text,
                       (int)min_size((size_t)(colon - pair), 80), pair);
    *colon = '\0';
    return run_options_read_workspace(r, pair, err);
}

static int run_options_refuse_high(const char *flag, struct err *err)
{
    return err_set(err, ERR_LEVEL_UNAVAILABLE,
                   "--%s high: needs a second kernel (gVisor or a microVM), and this version has no driver for "
                   "one; use --level standard",
                   flag);
}

static int run_options_read_level(const struct run_options *r, const char *text, struct err *err)
{
    enum level l;

    if (!level_parse(text, &l))
        return err_set(err, ERR_INVALID, "--level %.40s: unknown level; use standard, high or custom", text);
    if (l == LEVEL_HIGH)
        return run_options_refuse_high("level", err);
    if (l == LEVEL_CUSTOM && r->level != LEVEL_CUSTOM)
        return err_set(err, ERR_USAGE, "--level custom: needs a policy; add --policy debug or --policy FILE");
    if (l == LEVEL_STANDARD && r->level == LEVEL_CUSTOM)
        return err_set(err, ERR_USAGE,
                       "--level standard and --policy %.60s exclude each other: the policy has level custom",
                       r->policy->file ? r->policy->file : r->policy->name);
    return 0;
}

static int run_options_read_driver(struct run_options *r, const char *text, struct err *err)
{
    if (!driver_parse(text, &r->driver))
        return driver_unknown_error("--driver", text, err);
    r->driver_source = RUN_OPTION_FROM_FLAG;
    return 0;
}

static bool run_options_limit_is_chosen(const struct run_options *r, enum limit l)
{
    return r->chosen >> l & 1;
}

static int run_options_read_limit(struct run_options *r, const struct arg *a, struct err *err)
{
    enum limit l = (enum limit)(a->opt->id - OPT_LIMIT);

    if (limit_parse_flag(l, a->value, &r->limits.v[l], err) < 0)
        return err_wrap(err, "--%s %.40s", a->opt->name, a->value);
    if (l == LIMIT_OUTPUT && r->limits.v[l] == 0)
        return err_set(err, ERR_INVALID,
                       "--max-output 0: must be at least 1; to discard output, redirect it to /dev/null");
    r->chosen |= 1ull << l;
    r->source[l] = RUN_OPTION_FROM_FLAG;
    return 0;
}

static void run_options_add_env(struct run_options *r, char *pair)
{
    r->env = mem_resize(r->env, r->nenv + 2, sizeof(char *));
    r->env[r->nenv++] = pair;
    r->env[r->nenv] = NULL;
}

static int run_options_read_env(struct run_options *r, const char *text, struct err *err)
{
    char *pair = NULL;

    if (r->nenv == ENV_MAX)
        return err_set(err, ERR_INVALID, "--env: more than %d variables; remove some", ENV_MAX);
    if (run_options_parse_env(text, &pair, err) < 0)
        return -1;
    run_options_add_env(r, pair);
    return 0;
}

static int run_options_read_option(struct run_options *r, const struct arg *a, struct err *err)
{
    if (a->opt->id >= OPT_LIMIT)
        return run_options_read_limit(r, a, err);
    switch ((enum opt_id)a->opt->id) {
    case OPT_RUNTIME:
        r->runtime = a->value;
        return 0;
    case OPT_CODE:
        r->code = a->value;
        return 0;
    case OPT_CWD:
        free(r->cwd);
        r->cwd = NULL;
        return run_options_parse_cwd(a->value, &r->cwd, err);
    case OPT_ENV:
        return run_options_read_env(r, a->value, err);
    case OPT_WORKSPACE:
        return run_options_read_workspace(r, a->value, err);
    case OPT_BIND_RO:
        return run_options_read_bind(r, a->value, err);
    case OPT_VOLUME:
        return run_options_read_volume(r, a->value, err);
    case OPT_SKILLS:
        r->skills = a->value;
        return 0;
    case OPT_POLICY: /* read before all other flags */
        return 0;
    case OPT_LEVEL:
        return run_options_read_level(r, a->value, err);
    case OPT_NET:
        return run_network_read_mode(r, a->value, err);
    case OPT_ALLOW:
        return run_network_read_rule(r, EGRESS_ALLOW, a->value, err);
    case OPT_DENY:
        return run_network_read_rule(r, EGRESS_DENY, a->value, err);
    case OPT_SECRET:
        return run_network_read_secret(r, a->value, err);
    case OPT_DRIVER:
        return run_options_read_driver(r, a->value, err);
    case OPT_TTY:
        r->tty = true;
        return 0;
    case OPT_STDIN:
        r->interactive = true;
        return 0;
    case OPT_JSON:
        r->json = true;
        return 0;
    case OPT_RECEIPT:
        r->receipt = true;
        r->receipt_file = a->value;
        return 0;
    case OPT_QUIET:
        r->quiet = true;
        return 0;
    case OPT_DRY_RUN:
        r->dry_run = true;
        return 0;
    case OPT_KEEP:
        r->keep = true;
        return 0;
    case OPT_STATE_DIR:
        r->state_dir = a->value;
        return 0;
    default:
        return err_set(err, ERR_BUG, "flag --%s is in the table but not implemented", a->opt->name);
    }
}

/* Applies the policy, before the flags. A variable to pass that is not set in our environment is
 * skipped: a policy is written for many callers. */
static int run_options_apply_policy(struct run_options *r, const struct policy *p, struct err *err)
{
    if (p->level == LEVEL_HIGH)
        return run_options_refuse_high("policy", err);
    r->level = p->level;
    r->driver = p->driver;
    r->driver_source = p->driver_line ? RUN_OPTION_FROM_POLICY : RUN_OPTION_FROM_LEVEL;
    network_policy_copy(&r->network, &p->network);
    r->limits = p->limits;
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p->limit_line[i]) {
            r->chosen |= 1ull << i;
            r->source[i] = RUN_OPTION_FROM_POLICY;
        }
    r->grants = p->grants;
    memcpy(r->deny, p->deny, sizeof(r->deny));
    if (p->workspace_dir)
        r->workspace = str_dup(p->workspace_dir);
    r->cow = p->workspace == POLICY_COPY_ON_WRITE;
    for (size_t i = 0; i < p->npaths; i++) {
        const struct policy_path *path = &p->paths[i];

        r->binds[r->nbinds++] = (struct run_options_bind){ path->src ? str_dup(path->src) : NULL, str_dup(path->dst),
                                                           path->line };
    }
    for (size_t i = 0; i < p->nenv; i++) {
        const char *value = p->env[i].is_pass_through ? getenv(p->env[i].text) : NULL;

        if (!p->env[i].is_pass_through)
            run_options_add_env(r, str_dup(p->env[i].text));
        else if (value && strlen(value) <= ENV_TEXT_MAX)
            run_options_add_env(r, str_printf("%s=%s", p->env[i].text, value));
    }
    r->nenv_policy = r->nenv;
    return 0;
}

/* Applies the operator limits: a chosen value beyond them is refused, a default is lowered. */
static int run_options_apply_operator_limits(struct run_options *r, struct err *err)
{
    const struct operator_limits *f = r->operator_limits;
    enum policy_workspace w = !r->workspace ? POLICY_MEMORY : r->cow ? POLICY_COPY_ON_WRITE : POLICY_READ_WRITE;

    if (!f || !f->file)
        return 0;
    if (f->level == LEVEL_HIGH)
        return err_set(err, ERR_POLICY_OPERATOR_LIMIT,
                       "level: %.80s requires level high, and this version has no driver for it", f->file);
    if (r->driver_source == RUN_OPTION_FROM_LEVEL && f->forbidden_drivers & DRIVER_BIT(r->driver)) {
        r->driver = driver_default(f->forbidden_drivers);
        r->driver_source = RUN_OPTION_FROM_OPERATOR_LIMITS;
    }
    if (driver_check_allowed(f->forbidden_drivers, r->driver, "--driver", f->file, err) < 0)
        return -1;
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (f->forbidden_grants & r->grants & 1u << g)
            return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "--policy: %.80s forbids the grant '%s'", f->file,
                           grant_name((enum grant)g));
    if (f->allowed_workspaces && !(f->allowed_workspaces >> w & 1))
        return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "--workspace: %.80s does not allow mode %s", f->file,
                       policy_workspace_name(w));
    for (size_t i = 0; i < FILTER_DENY_WORDS; i++)
        r->deny[i] |= f->deny[i];
    uint64_t lowered = operator_limits_lower(f, &r->limits, r->chosen);
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        char have[LIMIT_TEXT], most[LIMIT_TEXT], source[RUN_OPTIONS_SOURCE_TEXT];
        enum limit l = (enum limit)i;

        if (lowered >> i & 1)
            r->source[i] = RUN_OPTION_FROM_OPERATOR_LIMITS;
        else if (f->has_max >> i & 1 && operator_limits_exceeded(l, r->limits.v[i], f->max[i]))
            return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "%.60s: %s %s is more than the %s that %.80s allows",
                           run_options_source_text(r, l, source), limit_info(l)->name,
                           limit_print(l, r->limits.v[i], have), limit_print(l, f->max[i], most), f->file);
    }
    r->output_capped = r->output_capped || lowered & LIMIT_BIT(OUTPUT);
    r->chosen |= lowered; /* so that no later step raises it again */
    return 0;
}

char *run_options_source_text(const struct run_options *r, enum limit l, char buf[RUN_OPTIONS_SOURCE_TEXT])
{
    const struct policy *p = r->policy;
    const char *base = p ? p->base : "standard";

    switch ((enum run_options_source)r->source[l]) {
    case RUN_OPTION_FROM_FLAG:
        snprintf(buf, RUN_OPTIONS_SOURCE_TEXT, "--%s", limit_info(l)->flag);
        break;
    case RUN_OPTION_FROM_POLICY:
        assert(p); /* only a policy sets this source */
        snprintf(buf, RUN_OPTIONS_SOURCE_TEXT, "%.140s:%" PRIu32, p->file ? p->file : p->name, p->limit_line[l]);
        break;
    case RUN_OPTION_FROM_OPERATOR_LIMITS:
        snprintf(buf, RUN_OPTIONS_SOURCE_TEXT, "%.150s", r->operator_limits->file);
        break;
    case RUN_OPTION_FROM_OTHER_LIMITS:
        snprintf(buf, RUN_OPTIONS_SOURCE_TEXT, "follows from others");
        break;
    case RUN_OPTION_FROM_LEVEL:
        snprintf(buf, RUN_OPTIONS_SOURCE_TEXT, "%s", base);
        break;
    }
    return buf;
}

/* Derives the unset limits from the given limits. */
static int run_options_complete_limits(struct run_options *r, struct err *err)
{
    uint64_t *v = r->limits.v;
    struct limits before = r->limits;

    if (r->tty && !run_options_limit_is_chosen(r, LIMIT_WALL))
        v[LIMIT_WALL] = TTY_WALL_MS;
    if (!run_options_limit_is_chosen(r, LIMIT_LIFETIME)) /* a kept sandbox waits for its user */
        v[LIMIT_LIFETIME] = r->keep ? limit_info(LIMIT_LIFETIME)->max
                                    : max_u64(v[LIMIT_LIFETIME],
                                              min_u64(v[LIMIT_WALL] + SLACK_MS, limit_info(LIMIT_LIFETIME)->max));
    r->output_capped = r->json || run_options_limit_is_chosen(r, LIMIT_OUTPUT);
    if (!r->output_capped) /* streamed output is not stored, so it needs no bound */
        v[LIMIT_OUTPUT] = limit_info(LIMIT_OUTPUT)->max;
    if (run_options_apply_operator_limits(r, err) < 0)
        return -1;
    limits_fit(&r->limits, r->chosen);
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (v[i] != before.v[i] && r->source[i] == RUN_OPTION_FROM_LEVEL)
            r->source[i] = RUN_OPTION_FROM_OTHER_LIMITS;
    return 0;
}

static int run_options_check_combination(const struct run_options *r, struct err *err)
{
    if (r->tty && r->json)
        return err_set(err, ERR_USAGE,
                       "--tty and --json exclude each other: terminal output cannot be captured as text");
    if (r->state_dir && r->state_dir[0] != '/')
        return err_set(err, ERR_INVALID, "--state-dir %.80s: not an absolute path", r->state_dir);
    return limits_check(&r->limits, err);
}

int run_options_build(const struct args *a, const struct policy *policy, const struct operator_limits *floor,
                      struct run_options *ret, struct err *err)
{
    struct run_options r = {
        .level = LEVEL_STANDARD, .words = a->rest, .nwords = a->nrest, .after_dashes = a->after_dashes
    };

    _Static_assert(RUN_OPTIONS_BINDS_MAX >= POLICY_PATHS_MAX, "all mounts of a policy fit");
    r.policy = policy;
    r.operator_limits = floor;
    limits_default(&r.limits);
    if (policy && run_options_apply_policy(&r, policy, err) < 0)
        goto fail;
    for (size_t i = 0; i < a->n; i++)
        if (run_options_read_option(&r, &a->items[i], err) < 0)
            goto fail;
    if (r.code && !r.runtime)
        r.runtime = RUN_OPTIONS_LANGUAGE_DEFAULT;
    if (!r.cwd)
        r.cwd = str_dup("/workspace");
    if (run_network_complete(&r, err) < 0 || drivers_check_network(r.driver, r.network.mode, err) < 0 ||
        run_options_complete_limits(&r, err) < 0)
        goto fail;
    if (r.skills && run_options_add_bind(&r, r.skills, strlen(r.skills), "/skills", "skills", err) < 0)
        goto fail;
    if (run_options_check_combination(&r, err) < 0)
        goto fail;
    *ret = r;
    return 0;
fail:
    run_options_done(&r);
    return -1;
}

void run_options_done(struct run_options *r)
{
    for (size_t i = 0; i < r->nenv; i++)
        free(r->env[i]);
    free(r->env);
    for (size_t i = 0; i < r->nbinds; i++) {
        free(r->binds[i].src);
        free(r->binds[i].dst);
    }
    free(r->workspace);
    free(r->cwd);
    run_network_done(r);
    *r = (struct run_options){ 0 };
}
