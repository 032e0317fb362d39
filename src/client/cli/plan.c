/* The walls are those of the level: a sandbox has all of them or is not made, so the plan lists
 * them without checking the host. A limit may be unenforceable on a host: the receipt of a real run
 * says which limits were enforced. The facilities that the host offers for walls and limits are
 * listed at the end. */
#include "client/cli/plan.h"

#include "client/cli/report.h"

#include "client/cli/host_facts.h"

#include "core/base/jsonw.h"
#include "core/base/str.h"
#include "policy/network_json.h"
#include "policy/languages.h"
#include "policy/level.h"
#include "policy/syscalls.h"
#include "sandbox/drivers.h"
#include "sandbox/walls.h"

#include <stdio.h>

static const char *plan_access_name(uint8_t access)
{
    switch (access) {
    case FILE_READ:
        return "read";
    case FILE_READ_EXEC:
        return "read and execute";
    case FILE_READ_WRITE:
        return "read, write and execute";
    case FILE_DEVICE:
        return "devices";
    case FILE_LIST:
        return "list";
    default:
        return "?";
    }
}

static const char *plan_stdin_text(const struct run_options *r, const struct program *p)
{
    return r->tty ? "terminal" : r->interactive || p->reads_stdin ? "sent" : "sent unless it is a terminal";
}

static bool plan_has_control_chars(const char *s)
{
    auto_free char *tame = str_dup(s);

    str_strip_control_chars(tame);
    return !str_eq(tame, s);
}

/* Escapes control characters in bash notation: $'a\nb'. */
static void plan_add_escaped_word(struct buf *out, const char *s)
{
    buf_adds(out, "$'");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '\n')
            buf_adds(out, "\\n");
        else if (c < ' ' || c >= 0x7f)
            buf_addf(out, "\\x%02x", c);
        else
            buf_addf(out, c == '\'' || c == '\\' ? "\\%c" : "%c", c);
    }
    buf_adds(out, "'");
}

/* Quotes a word of a shell command if necessary, so that the line can be pasted. */
static void plan_add_shell_word(struct buf *out, const char *s)
{
    if (*s && s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+%")] == '\0') {
        buf_adds(out, s);
        return;
    }
    if (plan_has_control_chars(s)) {
        plan_add_escaped_word(out, s);
        return;
    }
    buf_adds(out, "'");
    for (; *s; s++) {
        if (*s == '\'')
            buf_adds(out, "'\\''");
        else
            buf_add(out, s, 1);
    }
    buf_adds(out, "'");
}

static unsigned plan_calls_allowed(const struct run_options *r, const struct program *p)
{
    struct filter_spec s = { .profile = p->profile, .grants = r->grants };

    memcpy(s.deny, r->deny, sizeof(s.deny));
    return filter_allowed_count(&s);
}

static const char *plan_policy_title(const struct run_options *r)
{
    return !r->policy ? "standard" : r->policy->file ? r->policy->file : r->policy->name;
}

/* --- sources of values other than limits --- */

/* "policy.yaml:12", or the name of a built-in policy, which has no line numbers. Returns buf. */
static char *plan_policy_line(const struct run_options *r, uint32_t line, char buf[RUN_OPTIONS_SOURCE_TEXT])
{
    if (line)
        snprintf(buf, RUN_OPTIONS_SOURCE_TEXT, "%.140s:%" PRIu32, plan_policy_title(r), line);
    else
        snprintf(buf, RUN_OPTIONS_SOURCE_TEXT, "%.150s", plan_policy_title(r));
    str_strip_control_chars(buf);
    return buf;
}

static const char *plan_profile_source(const struct run_options *r, char buf[RUN_OPTIONS_SOURCE_TEXT])
{
    if (r->policy && r->policy->has_profile)
        return plan_policy_line(r, r->policy->profile_line, buf);
    return r->runtime ? "--runtime" : "the program";
}

static const char *plan_driver_source(const struct run_options *r, char buf[RUN_OPTIONS_SOURCE_TEXT])
{
    switch (r->driver_source) {
    case RUN_OPTION_FROM_FLAG:
        return "--driver";
    case RUN_OPTION_FROM_POLICY:
        return plan_policy_line(r, r->policy->driver_line, buf);
    case RUN_OPTION_FROM_OPERATOR_LIMITS:
        return r->operator_limits->file;
    default:
        return r->policy ? r->policy->base : "standard";
    }
}

static const char *plan_network_source(const struct run_options *r, char buf[RUN_OPTIONS_SOURCE_TEXT])
{
    if (r->network_flag)
        return r->network_flag_name;
    if (r->policy && r->policy->network_line)
        return plan_policy_line(r, r->policy->network_line, buf);
    return r->policy ? r->policy->base : "standard";
}

static const char *plan_workspace_source(const struct run_options *r, char buf[RUN_OPTIONS_SOURCE_TEXT])
{
    if (r->workspace_flag)
        return "--workspace";
    if (r->workspace)
        return plan_policy_line(r, r->policy->workspace_line, buf);
    return r->policy ? r->policy->base : "standard";
}

/* Source of the i-th variable after those of the level. */
static const char *plan_env_source(const struct run_options *r, size_t i, char buf[RUN_OPTIONS_SOURCE_TEXT])
{
    size_t name = strcspn(r->env[i], "=");

    if (i >= r->nenv_policy)
        return "--env";
    for (size_t k = 0; k < r->policy->nenv; k++) {
        const struct policy_env *e = &r->policy->env[k];

        if (strcspn(e->text, "=") == name && memcmp(e->text, r->env[i], name) == 0)
            return plan_policy_line(r, e->line, buf);
    }
    return plan_policy_line(r, 0, buf);
}

static void plan_print_program(const struct run_options *r, const struct program *p, struct buf *out)
{
    char source[RUN_OPTIONS_SOURCE_TEXT];

    buf_adds(out, "Program\n  command     ");
    for (size_t i = 0; i < p->argc; i++) {
        buf_adds(out, i ? " " : "");
        plan_add_shell_word(out, p->argv[i]);
    }
    buf_addf(out, "\n  directory   %s\n  input       %s\n", r->cwd, plan_stdin_text(r, p));
    buf_addf(out, "  profile     %s, %u system calls allowed (%s)\n", profile_name(p->profile),
             plan_calls_allowed(r, p), plan_profile_source(r, source));
}

/* System calls that the policy allows or denies in addition to the profile. */
static void plan_print_calls(const struct run_options *r, struct buf *out)
{
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (r->grants >> g & 1)
            buf_addf(out, "  granted     %s: %s\n", grant_name((enum grant)g), grant_why((enum grant)g));
    for (unsigned nr = 0; nr < 64 * FILTER_DENY_WORDS; nr++)
        if (policy_denies(r->deny, nr))
            buf_addf(out, "  denied      %s\n", syscall_name(nr));
}

static void plan_print_limits(const struct run_options *r, struct buf *out)
{
    buf_adds(out, "Limits\n");
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit)i);
        char text[LIMIT_TEXT], source[RUN_OPTIONS_SOURCE_TEXT];
        bool open = i == LIMIT_OUTPUT && !r->output_capped;
        bool lent = r->workspace && !r->cow;
        bool advisory = lent && (i == LIMIT_WORKSPACE || i == LIMIT_WORKSPACE_INODES);
        bool idle = !lent && i == LIMIT_IO_WRITE && r->limits.v[i];

        buf_addf(out, "  %s%-*s %-10s %s (%s)\n", info->flag ? "--" : "", info->flag ? 20 : 22,
                 info->flag ? info->flag : info->name,
                 open ? "unlimited" : limit_print((enum limit)i, r->limits.v[i], text),
                 advisory ? "advisory: the quota of your directory's file system applies"
                 : idle   ? "no effect: no writable file is on a disk"
                          : info->action,
                 run_options_source_text(r, (enum limit)i, source));
    }
}

static void plan_print_bind(const struct run_options *r, const struct run_options_bind *b, struct buf *out)
{
    auto_free char *text = b->line ? str_printf("%-14s %s%s (%s:%" PRIu32 ")", b->dst, b->src ? b->src : "hidden",
                                                b->src ? " (read-only)" : "", plan_policy_title(r), b->line)
                                   : str_printf("%-14s %s (read-only)", b->dst, b->src);

    str_strip_control_chars(text);
    buf_addf(out, "  %s\n", text);
}

static void plan_print_mounts(const struct run_options *r, const struct program *p, struct buf *out)
{
    char size[32], source[RUN_OPTIONS_SOURCE_TEXT];

    buf_adds(out, "Files\n");
    if (r->workspace)
        buf_addf(out, "  %-14s %s, %s (%s)\n", "/workspace", r->workspace,
                 r->cow ? "copy on write: your directory stays unchanged" : "read and write",
                 plan_workspace_source(r, source));
    else
        buf_addf(out, "  %-14s new, %s in memory (%s)\n", "/workspace", str_bytes(r->limits.v[LIMIT_WORKSPACE], size),
                 plan_workspace_source(r, source));
    buf_addf(out, "  %-14s new, %s in memory\n", "/tmp", str_bytes(r->limits.v[LIMIT_TMP], size));
    for (size_t i = 0; i < r->nbinds; i++)
        plan_print_bind(r, &r->binds[i], out);
    if (p->script_fd >= 0)
        buf_addf(out, "  %-14s your script (read-only)\n", p->script_dst);
    if (p->code)
        buf_addf(out, "  %-14s the code from -c, %zu bytes\n", LANGUAGE_CODE_FILE, strlen(p->code));
    buf_adds(out, "  file rules, enforced by Landlock:\n");

    size_t n;
    const struct file_rule *rules = level_file_rules(r->level, &n);
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "    %-12s %s%s\n", rules[i].path, plan_access_name(rules[i].access),
                 rules[i].optional ? ", if it exists" : "");
}

/* A driver without a program of its own needs only what the other facts say. Returns the number of
 * facts. */
static size_t plan_collect_facts(const struct run_options *r, struct host_fact facts[HOST_FACTS_MAX])
{
    size_t n = host_facts_collect(facts);
    struct driver_availability a;

    drivers_check_host(r->driver, "", &a);
    if (a.available && !a.path[0])
        return n;
    facts[n] = (struct host_fact){ .name = driver_name(r->driver), .good = a.available };
    snprintf(facts[n].detail, sizeof(facts[n].detail), "%s%s%s", a.available ? a.path : a.why, a.available ? "" : "; ",
             a.fix);
    return n + 1;
}

static void plan_print_host(const struct run_options *r, struct buf *out)
{
    struct host_fact facts[HOST_FACTS_MAX];
    size_t n = plan_collect_facts(r, facts);

    buf_adds(out, "This host\n");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "  %-18s %s%s\n", facts[i].name, facts[i].good ? "" : "MISSING: ", facts[i].detail);
}

static void plan_json_host(const struct run_options *r, struct jsonw *w)
{
    struct host_fact facts[HOST_FACTS_MAX];
    size_t n = plan_collect_facts(r, facts);

    jsonw_key(w, "host");
    jsonw_object(w);
    for (size_t i = 0; i < n; i++) {
        jsonw_key(w, facts[i].name);
        jsonw_object(w);
        jsonw_kbool(w, "available", facts[i].good);
        jsonw_kstr(w, "detail", facts[i].detail);
        jsonw_end_object(w);
    }
    jsonw_end_object(w);
}

/* In the order in which they are evaluated. */
static void plan_print_rules(const struct run_options *r, struct buf *out)
{
    for (const char *line = r->network.rules; line && *line;) {
        size_t n = strcspn(line, "\n");

        buf_addf(out, "  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

void plan_print(const struct run_options *r, const struct program *p, struct buf *out)
{
    const char *const *env = level_environment(r->level, r->network.mode);
    size_t nwalls;
    const struct wall *walls = walls_all(&nwalls);
    char source[RUN_OPTIONS_SOURCE_TEXT];

    buf_adds(out, "Dry run: nothing was started.\n\n");
    plan_print_program(r, p, out);
    plan_print_calls(r, out);
    buf_addf(out, "Driver\n  %-11s %s (%s)\n", driver_name(r->driver), driver_summary(r->driver),
             plan_driver_source(r, source));
    buf_addf(out, "Network\n  %-11s %s (%s)\n", network_mode_name(r->network.mode),
             network_mode_summary(r->network.mode), plan_network_source(r, source));
    plan_print_rules(r, out);
    buf_addf(out, "Walls (level %s, policy %s; a wall that cannot be raised is an error)\n", level_name(r->level),
             plan_policy_title(r));
    for (size_t i = 0; i < nwalls; i++)
        buf_addf(out, "  %-18s %s\n", walls[i].name, walls[i].effect);
    plan_print_limits(r, out);
    plan_print_mounts(r, p, out);
    buf_adds(out, "Environment\n");
    for (size_t i = 0; env[i]; i++)
        buf_addf(out, "  %s (%s)\n", env[i], level_name(r->level));
    for (size_t i = 0; i < r->nenv; i++) {
        auto_free char *text = str_dup(r->env[i]);

        str_strip_control_chars(text);
        buf_addf(out, "  %s (%s)\n", text, plan_env_source(r, i, source));
    }
    plan_print_host(r, out);
}

static void plan_json_mount(struct jsonw *w, const char *dst, const char *kind, const char *src)
{
    jsonw_object(w);
    jsonw_kstr(w, "path", dst);
    jsonw_kstr(w, "kind", kind);
    if (src)
        jsonw_kstr(w, "source", src);
    jsonw_end_object(w);
}

static void plan_json_lists(const struct run_options *r, const struct program *p, struct jsonw *w)
{
    const char *const *env = level_environment(r->level, r->network.mode);
    size_t nwalls;
    const struct wall *walls = walls_all(&nwalls);

    jsonw_key(w, "walls");
    jsonw_array(w);
    for (size_t i = 0; i < nwalls; i++)
        jsonw_str(w, walls[i].name);
    jsonw_end_array(w);
    jsonw_key(w, "mounts");
    jsonw_array(w);
    plan_json_mount(w, "/workspace", !r->workspace ? "memory" : r->cow ? "copy_on_write" : "read_write", r->workspace);
    plan_json_mount(w, "/tmp", "memory", NULL);
    for (size_t i = 0; i < r->nbinds; i++)
        plan_json_mount(w, r->binds[i].dst, r->binds[i].src ? "read_only" : "hidden", r->binds[i].src);
    if (p->script_fd >= 0)
        plan_json_mount(w, p->script_dst, "read_only", r->words[0]);
    jsonw_end_array(w);
    jsonw_key(w, "env");
    jsonw_array(w);
    for (size_t i = 0; env[i]; i++)
        jsonw_str(w, env[i]);
    for (size_t i = 0; i < r->nenv; i++)
        jsonw_str(w, r->env[i]);
    jsonw_end_array(w);
}

static void plan_json_calls(const struct run_options *r, struct jsonw *w)
{
    jsonw_key(w, "granted");
    jsonw_array(w);
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (r->grants >> g & 1)
            jsonw_str(w, grant_name((enum grant)g));
    jsonw_end_array(w);
    jsonw_key(w, "denied");
    jsonw_array(w);
    for (unsigned nr = 0; nr < 64 * FILTER_DENY_WORDS; nr++)
        if (policy_denies(r->deny, nr))
            jsonw_str(w, syscall_name(nr));
    jsonw_end_array(w);
}

static void plan_json_sources(const struct run_options *r, struct jsonw *w)
{
    char text[RUN_OPTIONS_SOURCE_TEXT];

    jsonw_key(w, "limitSources");
    jsonw_object(w);
    for (int i = 0; i < LIMIT_COUNT; i++)
        jsonw_kstr(w, limit_info((enum limit)i)->name, run_options_source_text(r, (enum limit)i, text));
    jsonw_end_object(w);
    jsonw_key(w, "sources");
    jsonw_object(w);
    jsonw_kstr(w, "profile", plan_profile_source(r, text));
    jsonw_kstr(w, "driver", plan_driver_source(r, text));
    jsonw_kstr(w, "network", plan_network_source(r, text));
    jsonw_kstr(w, "workspace", plan_workspace_source(r, text));
    jsonw_key(w, "env"); /* same order as "env" above */
    jsonw_array(w);
    for (size_t i = 0; level_environment(r->level, r->network.mode)[i]; i++)
        jsonw_str(w, level_name(r->level));
    for (size_t i = 0; i < r->nenv; i++)
        jsonw_str(w, plan_env_source(r, i, text));
    jsonw_end_array(w);
    jsonw_end_object(w);
}

void plan_json(const struct run_options *r, const struct program *p, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, report_json_indent());
    jsonw_object(&w);
    jsonw_kbool(&w, "dryRun", true);
    jsonw_kstr(&w, "level", level_name(r->level));
    jsonw_kstr(&w, "policy", plan_policy_title(r));
    jsonw_kstr(&w, "profile", profile_name(p->profile));
    jsonw_ku64(&w, "systemCallsAllowed", plan_calls_allowed(r, p));
    plan_json_calls(r, &w);
    jsonw_kstr(&w, "driver", driver_name(r->driver));
    jsonw_key(&w, "network");
    network_json_write(&w, &r->network);
    jsonw_key(&w, "argv");
    jsonw_array(&w);
    for (size_t i = 0; i < p->argc; i++)
        jsonw_str(&w, p->argv[i]);
    jsonw_end_array(&w);
    jsonw_kstr(&w, "cwd", r->cwd);
    jsonw_kbool(&w, "tty", r->tty);
    jsonw_key(&w, "limits");
    jsonw_object(&w);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        bool none = limit_is_unlimited((enum limit)i, r->limits.v[i]) || (i == LIMIT_OUTPUT && !r->output_capped);

        jsonw_key(&w, limit_info((enum limit)i)->name);
        if (none)
            jsonw_null(&w);
        else
            jsonw_u64(&w, r->limits.v[i]);
    }
    jsonw_end_object(&w);
    plan_json_sources(r, &w);
    plan_json_lists(r, p, &w);
    plan_json_host(r, &w);
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}
