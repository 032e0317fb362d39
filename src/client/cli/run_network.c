/* A secret's value comes from an environment variable, because every user of the host can read a
 * command line. If a flag holds a value by mistake, no message repeats it. */
#include "client/cli/run_network.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/operator_network.h"

#define SECRET_VALUE_MAX 1023 /* of the message that carries it to the proxy */

static void run_network_note_flag(struct run_options *r, const char *flag)
{
    if (!r->network_flag)
        r->network_flag_name = flag;
    r->network_flag = true;
}

int run_network_read_mode(struct run_options *r, const char *text, struct err *err)
{
    enum network_mode mode;

    if (!network_mode_parse(text, &mode))
        return err_set(
            err, ERR_INVALID,
            "--net %.40s: must be none or egress; write --allow HOST for each host that the sandbox may reach", text);
    r->net_none = mode == NETWORK_NONE;
    r->net_egress = mode == NETWORK_EGRESS;
    run_network_note_flag(r, "--net");
    return 0;
}

static const char *run_network_preset_named(const char *text)
{
    static const char *const presets[] = {
#define PRESET(name, summary) #name,
#define PRESET_HOST(name, host, port)
#include "policy/egress_presets.def"
#undef PRESET
#undef PRESET_HOST
    };

    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        if (str_eq(presets[i], text))
            return presets[i];
    return NULL;
}

/* A target alone, or a target with attributes: "HOST:80 methods=GET path=/v1/x". */
static int run_network_add_rule(struct buf *rules, enum egress_action action, const char *text, struct err *err)
{
    auto_(egress_rules) one = NULL;
    auto_buf line = { 0 };

    if (!strchr(text, ' ') || text[strcspn(text, "\r\n")])
        return egress_rules_add_line(rules, action, text, NULL, NULL, err);
    buf_addf(&line, "%s %s", action == EGRESS_ALLOW ? "allow" : "deny", text);
    if (egress_rules_parse(line.data, line.len, &one, err) < 0)
        return -1;
    egress_rules_write(one, rules);
    return 0;
}

int run_network_read_rule(struct run_options *r, enum egress_action action, const char *text, struct err *err)
{
    const char *flag = action == EGRESS_ALLOW ? "--allow" : "--deny", *preset = run_network_preset_named(text);

    if (preset)
        return err_set(err, ERR_EGRESS_RULE, "%s %s: is a preset; write %s preset:%s", flag, preset, flag, preset);
    if (run_network_add_rule(&r->network_rules, action, text, err) < 0)
        return err_wrap(err, "%s", flag);
    run_network_note_flag(r, flag);
    return 0;
}

/* --- secrets --- */

static bool run_network_looks_like_variable(const char *name)
{
    return name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '\0';
}

static int run_network_read_value(const char *secret, const char *variable, const char **ret, struct err *err)
{
    const char *value = getenv(variable);

    if (!policy_env_name_valid(variable, strlen(variable)))
        return err_set(err, ERR_INVALID,
                       "--secret %.63s: after '=' must be the name of an environment variable, not the value; export "
                       "the value and name its variable",
                       secret);
    if (!value || !*value)
        return err_set(err, ERR_INVALID, "--secret %.63s: %.80s is %s in your environment; export it first", secret,
                       run_network_looks_like_variable(variable) ? variable : "the variable",
                       value ? "empty" : "not set");
    for (const char *p = value; *p; p++)
        if (*p < 0x20 || *p > 0x7e)
            return err_set(err, ERR_INVALID,
                           "--secret %.63s: the value has a line feed or another character that a header cannot hold",
                           secret);
    if (strlen(value) > SECRET_VALUE_MAX)
        return err_set(err, ERR_INVALID, "--secret %.63s: the value is longer than %d characters", secret,
                       SECRET_VALUE_MAX);
    *ret = value;
    return 0;
}

/* ",header=H,format=F": the format is last, because it may hold commas. */
static int run_network_read_attributes(struct egress_secret_fields *f, char *text, struct err *err)
{
    while (text) {
        char *next = str_starts(text, "format=") ? NULL : strchr(text, ',');

        if (next)
            *next++ = '\0';
        if (str_starts(text, "header="))
            f->header = text + strlen("header=");
        else if (str_starts(text, "format="))
            f->format = text + strlen("format=");
        else
            return err_set(err, ERR_INVALID,
                           "--secret %.63s: '%.40s' is not an attribute; attributes are header= and format=", f->name,
                           text);
        text = next;
    }
    return 0;
}

/* "NAME" and "HOST header=H methods=GET path=/v1/x": as for sandboxes of a server. */
static int run_network_add_spaced(struct run_options *r, const char *name, const char *host, struct err *err)
{
    auto_(egress_rules) one = NULL;
    auto_buf line = { 0 };

    buf_addf(&line, "secret %s %s", name, host);
    if (host[strcspn(host, "\r\n")])
        return err_set(err, ERR_EGRESS_RULE, "secret %.63s: a rule has one line", name);
    if (egress_rules_parse(line.data, line.len, &one, err) < 0)
        return -1;
    egress_rules_write(one, &r->network_rules);
    return 0;
}

static void run_network_add_value(struct run_options *r, const char *name, const char *value)
{
    char *lower = str_dup(name);

    for (char *p = lower; *p; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
    r->secrets = mem_resize(r->secrets, r->nsecrets + 1, sizeof(*r->secrets));
    r->secrets[r->nsecrets++] = (struct sandbox_secret){ lower, str_dup(value) };
}

int run_network_read_secret(struct run_options *r, const char *text, struct err *err)
{
    auto_free char *copy = str_dup(text);
    struct egress_secret_fields f = { .name = copy };
    char *variable = strchr(copy, '='), *host, *rest;
    const char *value;

    if (!variable)
        return err_set(err, ERR_INVALID,
                       "--secret: write NAME=ENVVAR@HOST, for example "
                       "--secret openai=OPENAI_API_KEY@api.openai.com");
    *variable++ = '\0';
    host = strchr(variable, '@');
    bool is_spaced = host && host[strcspn(host, " ,")] == ' ';
    rest = is_spaced ? NULL : strchr(variable, ',');
    if (rest)
        *rest++ = '\0';
    host = is_spaced ? host : strrchr(variable, '@');
    if (host)
        *host++ = '\0';
    if (run_network_read_value(f.name, variable, &value, err) < 0)
        return -1;
    if (!host && rest)
        return err_set(err, ERR_INVALID, "--secret %.63s: attributes need a host; write NAME=ENVVAR@HOST,header=H",
                       f.name);
    f.host = host;
    int rc = !host       ? 0
             : is_spaced ? run_network_add_spaced(r, f.name, host, err)
                         : run_network_read_attributes(&f, rest, err);
    if (rc == 0 && host && !is_spaced)
        rc = egress_rules_add_secret(&r->network_rules, &f, err);
    if (rc < 0)
        return err_wrap(err, "--secret");
    run_network_add_value(r, f.name, value);
    run_network_note_flag(r, "--secret");
    return 0;
}

static const char *run_network_value_of(const struct run_options *r, const char *name)
{
    for (size_t i = 0; i < r->nsecrets; i++)
        if (str_eq(r->secrets[i].name, name))
            return r->secrets[i].value;
    return NULL;
}

/* Each secret has one rule and one value. */
static int run_network_check_secrets(const struct run_options *r, const struct egress_rules *rules, struct err *err)
{
    for (size_t i = 0; i < rules->nsecrets; i++)
        if (!run_network_value_of(r, rules->secrets[i].name))
            return err_set(err, ERR_INVALID,
                           "secret %s: the policy binds it to %.80s, but it has no value; write --secret %s=ENVVAR",
                           rules->secrets[i].name, rules->secrets[i].host, rules->secrets[i].name);
    for (size_t i = 0; i < r->nsecrets; i++) {
        bool bound = false;

        for (size_t k = 0; k < rules->nsecrets; k++)
            bound |= str_eq(rules->secrets[k].name, r->secrets[i].name);
        for (size_t k = 0; k < i; k++)
            if (str_eq(r->secrets[k].name, r->secrets[i].name))
                return err_set(err, ERR_INVALID, "--secret %.63s: given twice", r->secrets[i].name);
        if (!bound)
            return err_set(
                err, ERR_INVALID,
                "--secret %.63s: no host gets it; write --secret %.63s=ENVVAR@HOST, or bind it in the policy",
                r->secrets[i].name, r->secrets[i].name);
    }
    return 0;
}

/* --- all together --- */

/* Rules of flags stand before those of the policy, so that they override it. */
static int run_network_join(struct run_options *r, struct err *err)
{
    auto_(egress_rules) rules = NULL;
    auto_buf text = { 0 };

    buf_addf(&text, "%s\n%s", r->network_rules.data ? r->network_rules.data : "",
             r->network.rules ? r->network.rules : "");
    if (egress_rules_parse(text.data, text.len, &rules, err) < 0)
        return -1;
    if (run_network_check_secrets(r, rules, err) < 0)
        return -1;
    buf_clear(&text);
    egress_rules_write(rules, &text);
    network_policy_done(&r->network);
    r->network = (struct network_policy){ NETWORK_EGRESS, text.len ? str_dup(text.data) : NULL };
    return 0;
}

int run_network_complete(struct run_options *r, struct err *err)
{
    if (r->net_none && (r->network_rules.len > 0 || r->nsecrets > 0))
        return err_set(err, ERR_USAGE, "--net none and --allow, --deny or --secret exclude each other");
    if (r->net_none)
        network_policy_done(&r->network);
    else if (r->network_rules.len > 0 || r->nsecrets > 0 || r->net_egress || r->network.mode == NETWORK_EGRESS) {
        if (run_network_join(r, err) < 0)
            return -1;
    }
    const struct operator_limits *f = r->operator_limits;
    if (operator_network_check_addresses(&r->network, f ? f->open_ranges : NULL, f ? f->nopen_ranges : 0,
                                         r->network_flag ? r->network_flag_name : "network",
                                         "network.openRanges in /etc/cove/floor.yaml", err) < 0)
        return -1;
    if (!f || !f->file)
        return 0;
    if (operator_network_check(f, &r->network, r->network_flag ? r->network_flag_name : "network", f->file, err) < 0)
        return -1;
    return operator_network_narrow(f, &r->network, err);
}

void run_network_done(struct run_options *r)
{
    for (size_t i = 0; i < r->nsecrets; i++) {
        char *value = (char *)(uintptr_t)r->secrets[i].value;

        explicit_bzero(value, strlen(value));
        free(value);
        free((char *)(uintptr_t)r->secrets[i].name);
    }
    free(r->secrets);
    buf_done(&r->network_rules);
    network_policy_done(&r->network);
}
