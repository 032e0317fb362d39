/* One line per value, fields separated by one space. A text is written as it is, except that '%'
 * and every byte that is not printable ASCII become %XX; "-" stands for no value, so the text "-"
 * is written as %2D.
 *
 * The reader is strict by comparison: it parses lines loosely, then writes the result and compares
 * it with the input. Lines that are out of order, duplicate, spelled differently or unused do not
 * come out the same, so each policy has exactly one form, and no check of the form needs code of
 * its own. The values themselves (names that exist, numbers in range) are checked during parsing,
 * because the writer would reproduce invalid values as well. */
#include "policy/policy.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/egress_rules.h"
#include "policy/operator_network.h"

#define FIELDS_MAX 5

/* Writing. */

static void canon_add_text(struct buf *out, const char *s)
{
    bool dash = str_eq(s, "-");

    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c <= ' ' || c >= 0x7f || c == '%' || dash)
            buf_addf(out, "%%%02X", c);
        else
            buf_add(out, s, 1);
    }
}

static void canon_add_value(struct buf *out, const char *key, uint32_t line, const char *a, const char *b)
{
    buf_addf(out, "%s %" PRIu32 " ", key, line);
    canon_add_text(out, a);
    if (b) {
        buf_adds(out, " ");
        canon_add_text(out, b);
    }
    buf_adds(out, "\n");
}

static void canon_write_files(const struct policy *p, struct buf *out)
{
    if (p->workspace_line) {
        buf_addf(out, "workspace %" PRIu32 " %s ", p->workspace_line, policy_workspace_name(p->workspace));
        if (p->workspace_dir)
            canon_add_text(out, p->workspace_dir);
        else
            buf_adds(out, "-");
        buf_adds(out, "\n");
    }
    for (size_t i = 0; i < p->npaths; i++)
        if (p->paths[i].src)
            canon_add_value(out, "bind", p->paths[i].line, p->paths[i].src, p->paths[i].dst);
        else
            canon_add_value(out, "hide", p->paths[i].line, p->paths[i].dst, NULL);
    for (size_t i = 0; i < p->nenv; i++)
        canon_add_value(out, p->env[i].is_pass_through ? "pass" : "env", p->env[i].line, p->env[i].text, NULL);
}

/* A line for each line of a text. */
static void canon_write_lines(const char *key, const char *text, struct buf *out)
{
    for (const char *line = text; line && *line;) {
        size_t n = strcspn(line, "\n");
        auto_free char *one = str_dup_n(line, n);

        buf_addf(out, "%s ", key);
        canon_add_text(out, one);
        buf_adds(out, "\n");
        line += n + (line[n] == '\n');
    }
}

static void canon_write_operator_network(const struct operator_limits *f, struct buf *out)
{
    char address[IP_ADDRESS_TEXT];

    if (f->forbids_network)
        buf_adds(out, "floor-network none\n");
    canon_write_lines("floor-network-deny", f->network_denials, out);
    for (size_t i = 0; i < f->nopen_ranges; i++)
        buf_addf(out, "floor-network-open %s/%u\n", ip_address_format(&f->open_ranges[i].address, address),
                 f->open_ranges[i].bits);
}

static void canon_write_operator_limits(const struct operator_limits *f, struct buf *out)
{
    buf_adds(out, "floor ");
    canon_add_text(out, f->file);
    buf_addf(out, " %s\n", level_name(f->level));
    if (f->requires_every_wall)
        buf_adds(out, "floor-walls all\n");
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (f->must_enforce >> i & 1)
            buf_addf(out, "floor-enforce %s\n", limit_info((enum limit)i)->name);
    for (unsigned i = 0; i < POLICY_WORKSPACES; i++)
        if (f->allowed_workspaces >> i & 1)
            buf_addf(out, "floor-workspace %s\n", policy_workspace_name((enum policy_workspace)i));
    for (unsigned i = 0; i < GRANT_COUNT; i++)
        if (f->forbidden_grants >> i & 1)
            buf_addf(out, "floor-forbid %s\n", grant_name((enum grant)i));
    for (unsigned i = 0; i < DRIVER_COUNT; i++)
        if (f->forbidden_drivers & DRIVER_BIT(i))
            buf_addf(out, "floor-forbid-driver %s\n", driver_name((enum driver_id)i));
    for (unsigned nr = 0; nr < 64 * FILTER_DENY_WORDS; nr++)
        if (policy_denies(f->deny, nr) && syscall_name(nr))
            buf_addf(out, "floor-deny %s\n", syscall_name(nr));
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (f->has_max >> i & 1)
            buf_addf(out, "floor-limit %s %" PRIu64 "\n", limit_info((enum limit)i)->name, f->max[i]);
    canon_write_operator_network(f, out);
}

void canon_write(const struct policy *p, const struct operator_limits *f, struct buf *out)
{
    buf_addf(out, "cove-policy %d\npolicy ", CANON_VERSION);
    canon_add_text(out, p->name);
    buf_addf(out, " %s ", p->base);
    if (p->file)
        canon_add_text(out, p->file);
    else
        buf_adds(out, "-");
    buf_adds(out, "\n");
    if (p->has_profile)
        canon_add_value(out, "profile", p->profile_line, profile_name(p->profile), NULL);
    if (p->driver_line)
        canon_add_value(out, "driver", p->driver_line, driver_name(p->driver), NULL);
    if (p->network_line)
        canon_add_value(out, "network", p->network_line, network_mode_name(p->network.mode), NULL);
    canon_write_lines("rule", p->network.rules, out);
    canon_write_files(p, out);
    for (unsigned i = 0; i < GRANT_COUNT; i++)
        if (p->grants >> i & 1)
            canon_add_value(out, "grant", p->grant_line[i], grant_name((enum grant)i), NULL);
    for (unsigned nr = 0; nr < 64 * FILTER_DENY_WORDS; nr++)
        if (policy_denies(p->deny, nr) && syscall_name(nr))
            canon_add_value(out, "deny", p->deny_line[nr], syscall_name(nr), NULL);
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p->limit_line[i])
            buf_addf(out, "limit %" PRIu32 " %s %" PRIu64 "\n", p->limit_line[i], limit_info((enum limit)i)->name,
                     p->limits.v[i]);
    if (f->file)
        canon_write_operator_limits(f, out);
    buf_adds(out, "end\n");
}

/* Reading. */

struct canon_reader {
    struct policy *p;
    struct operator_limits *f;
    bool has_policy_line; /* a line `policy` was read */
    struct err *err;
};

static int canon_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes in place. */
static bool canon_decode_text(char *s)
{
    char *to = s;

    for (; *s; s++, to++) {
        if (*s != '%') {
            *to = *s;
            continue;
        }
        int high = canon_hex_digit(s[1]), low = high < 0 ? -1 : canon_hex_digit(s[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *to = (char)(high * 16 + low);
        s += 2;
    }
    *to = '\0';
    return true;
}

static bool canon_find_limit(const char *name, enum limit *ret)
{
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (str_eq(limit_info((enum limit)i)->name, name)) {
            *ret = (enum limit)i;
            return true;
        }
    return false;
}

static bool canon_read_limit(const char *name, const char *number, enum limit *ret, uint64_t *value)
{
    if (!canon_find_limit(name, ret) || !str_to_u64(number, UINT64_MAX, value))
        return false;
    const struct limit_info *info = limit_info(*ret);
    return *value >= info->min && *value <= info->max;
}

static bool canon_read_policy(struct canon_reader *r, char **f, size_t n)
{
    struct policy p;

    if (n != 4 || r->has_policy_line || !policy_builtin(f[2], &p))
        return false;
    bool file = !str_eq(f[3], "-");
    if (!canon_decode_text(f[1]) || !canon_decode_text(f[3]) || !policy_name_valid(f[1]) || !*f[3])
        return false;
    (void)str_copy(p.name, sizeof(p.name), f[1]);
    if (file) {
        p.file = str_dup(f[3]);
        p.level = p.level == LEVEL_HIGH ? LEVEL_HIGH : LEVEL_CUSTOM;
    }
    policy_done(r->p);
    *r->p = p;
    return r->has_policy_line = true;
}

static bool canon_read_workspace(struct policy *p, char **f, size_t n, uint32_t line)
{
    if (n != 4 || line == 0 || p->workspace_line || !policy_workspace_parse(f[2], &p->workspace))
        return false;
    p->workspace_line = line;
    if (str_eq(f[3], "-"))
        return p->workspace == POLICY_MEMORY;
    if (p->workspace == POLICY_MEMORY || !canon_decode_text(f[3]) || f[3][0] != '/' || strlen(f[3]) > POLICY_PATH_TEXT)
        return false;
    p->workspace_dir = str_dup(f[3]);
    return true;
}

static bool canon_read_path(struct policy *p, const char *src, const char *dst, uint32_t line)
{
    if (p->npaths == POLICY_PATHS_MAX || line == 0 || !policy_path_is_plain(dst) || strlen(dst) > POLICY_TARGET_TEXT)
        return false;
    if (src && (src[0] != '/' || strlen(src) > POLICY_PATH_TEXT))
        return false;
    p->paths[p->npaths++] = (struct policy_path){ src ? str_dup(src) : NULL, str_dup(dst), line };
    return true;
}

static bool canon_read_env(struct policy *p, const char *text, bool pass, uint32_t line)
{
    size_t name = strcspn(text, "=");

    if (p->nenv == POLICY_ENV_MAX || line == 0 || !policy_env_name_valid(text, name) || (text[name] == '=') == pass ||
        strlen(text) > POLICY_ENV_TEXT)
        return false;
    p->env[p->nenv++] = (struct policy_env){ str_dup(text), pass, line };
    return true;
}

static bool canon_read_grant(struct policy *p, const char *name, uint32_t line)
{
    enum grant g;

    if (!grant_parse(name, &g))
        return false;
    p->grants |= 1u << g;
    p->grant_line[g] = line;
    return true;
}

static bool canon_find_deniable_call(const char *name, unsigned *ret)
{
    int nr = syscall_number(name);

    if (nr < 0 || nr >= 64 * FILTER_DENY_WORDS || syscall_is_needed((unsigned)nr))
        return false;
    *ret = (unsigned)nr;
    return true;
}

/* Adds a line to canonical rules. Rules are checked when all lines are known. */
static bool canon_add_rule(char **text, char *line)
{
    if (!canon_decode_text(line) || strchr(line, '\n') || !*line)
        return false;
    char *rules = *text ? str_printf("%s\n%s", *text, line) : str_dup(line);
    free(*text);
    *text = rules;
    return strlen(rules) <= EGRESS_RULES_TEXT_LIMIT;
}

static bool canon_read_rule(struct canon_reader *r, char **f, size_t n)
{
    char *text = (char *)(uintptr_t)r->p->network.rules;
    bool ok = n == 2 && r->has_policy_line && r->p->network.mode == NETWORK_EGRESS && canon_add_rule(&text, f[1]);

    r->p->network.rules = text;
    return ok;
}

/* Whether the rules are canonical, and only deny if `denials`. */
static bool canon_rules_are_valid(const char *text, bool denials)
{
    auto_(egress_rules) rules = NULL;
    auto_buf again = { 0 };

    if (!text)
        return true;
    if (egress_rules_parse(text, strlen(text), &rules, NULL) < 0)
        return false;
    for (size_t i = 0; denials && i < rules->nrules; i++)
        if (rules->rules[i].action != EGRESS_DENY)
            return false;
    egress_rules_write(rules, &again);
    return again.data && str_eq(again.data, text) && !(denials && rules->nsecrets);
}

static bool canon_read_value(struct canon_reader *r, char **f, size_t n)
{
    struct policy *p = r->p;
    uint32_t line;
    uint64_t number;
    unsigned nr;
    enum limit l;

    if (!r->has_policy_line || n < 3 || !str_to_u64(f[1], POLICY_LINES_MAX, &number))
        return false;
    line = (uint32_t)number;
    if (str_eq(f[0], "workspace"))
        return canon_read_workspace(p, f, n, line);
    if (str_eq(f[0], "limit")) {
        if (n != 4 || line == 0 || !canon_read_limit(f[2], f[3], &l, &number))
            return false;
        p->limits.v[l] = number;
        p->limit_line[l] = line;
        return true;
    }
    if (str_eq(f[0], "bind"))
        return n == 4 && canon_decode_text(f[2]) && canon_decode_text(f[3]) && canon_read_path(p, f[2], f[3], line);
    if (n != 3 || !canon_decode_text(f[2]))
        return false;
    if (str_eq(f[0], "profile")) {
        p->profile_line = line;
        return p->has_profile = profile_parse(f[2], &p->profile);
    }
    if (str_eq(f[0], "driver")) {
        p->driver_line = line;
        return driver_parse(f[2], &p->driver);
    }
    if (str_eq(f[0], "network")) {
        p->network_line = line;
        return network_mode_parse(f[2], &p->network.mode);
    }
    if (str_eq(f[0], "hide"))
        return canon_read_path(p, NULL, f[2], line);
    if (str_eq(f[0], "env") || str_eq(f[0], "pass"))
        return canon_read_env(p, f[2], f[0][0] == 'p', line);
    if (str_eq(f[0], "grant"))
        return canon_read_grant(p, f[2], line);
    if (str_eq(f[0], "deny") && canon_find_deniable_call(f[2], &nr)) {
        policy_deny(p->deny, nr);
        p->deny_line[nr] = line;
        return true;
    }
    return false;
}

static bool canon_read_operator_limits(struct canon_reader *r, char **f, size_t n)
{
    struct operator_limits *fl = r->f;
    enum policy_workspace w;
    enum driver_id d;
    enum grant g;
    enum limit l;
    struct ip_prefix range;
    unsigned nr;
    uint64_t number;

    if (str_eq(f[0], "floor")) {
        if (n != 3 || fl->file || !canon_decode_text(f[1]) || !*f[1] || !level_parse(f[2], &fl->level))
            return false;
        fl->file = str_dup(f[1]);
        return true;
    }
    if (!fl->file || n < 2)
        return false;
    if (str_eq(f[0], "floor-network") && str_eq(f[1], "none")) {
        fl->forbids_network = true;
    } else if (str_eq(f[0], "floor-network-deny") && n == 2) {
        return canon_add_rule(&fl->network_denials, f[1]);
    } else if (str_eq(f[0], "floor-network-open") && ip_prefix_parse(f[1], strlen(f[1]), &range)) {
        return operator_network_open(fl, &range);
    } else if (str_eq(f[0], "floor-walls") && str_eq(f[1], "all")) {
        fl->requires_every_wall = true;
    } else if (str_eq(f[0], "floor-enforce") && canon_find_limit(f[1], &l)) {
        fl->must_enforce |= 1ull << l;
    } else if (str_eq(f[0], "floor-workspace") && policy_workspace_parse(f[1], &w)) {
        fl->allowed_workspaces |= 1u << w;
    } else if (str_eq(f[0], "floor-forbid") && grant_parse(f[1], &g)) {
        fl->forbidden_grants |= 1u << g;
    } else if (str_eq(f[0], "floor-forbid-driver") && driver_parse(f[1], &d)) {
        fl->forbidden_drivers |= DRIVER_BIT(d);
    } else if (str_eq(f[0], "floor-deny") && canon_find_deniable_call(f[1], &nr)) {
        policy_deny(fl->deny, nr);
    } else if (str_eq(f[0], "floor-limit") && n == 3 && canon_read_limit(f[1], f[2], &l, &number)) {
        fl->max[l] = number;
        fl->has_max |= 1ull << l;
    } else {
        return false;
    }
    return true;
}

static bool canon_read_line(struct canon_reader *r, char *line)
{
    char *f[FIELDS_MAX];
    size_t n = 0;

    for (char *save = NULL, *t = strtok_r(line, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        if (n == FIELDS_MAX)
            return false;
        f[n++] = t;
    }
    if (n == 0)
        return false;
    if (str_eq(f[0], "policy"))
        return canon_read_policy(r, f, n);
    if (str_starts(f[0], "floor"))
        return canon_read_operator_limits(r, f, n);
    if (str_eq(f[0], "rule"))
        return canon_read_rule(r, f, n);
    return canon_read_value(r, f, n);
}

static int canon_read_lines(struct canon_reader *r, char *text)
{
    static const char first[] = "cove-policy ";
    unsigned number = 2;
    char *end = strchr(text, '\n');
    uint64_t version;

    if (end)
        *end = '\0';
    if (!end || !str_starts(text, first) || !str_to_u64(text + strlen(first), 1000000, &version))
        return err_set(r->err, ERR_PROTOCOL, "a canonical policy does not start with its version");
    if (version != CANON_VERSION)
        return err_set(r->err, ERR_VERSION,
                       "cove reads canonical policies of version %d, but cove-policy wrote version %u", CANON_VERSION,
                       (unsigned)version);
    for (char *line = end + 1; (end = strchr(line, '\n')); line = end + 1, number++) {
        *end = '\0';
        if (str_eq(line, "end"))
            return r->has_policy_line ? 0 : err_set(r->err, ERR_PROTOCOL, "a canonical policy has no name");
        if (!canon_read_line(r, line))
            return err_set(r->err, ERR_PROTOCOL, "line %u of a canonical policy is not valid", number);
    }
    return err_set(r->err, ERR_PROTOCOL, "a canonical policy has no end line");
}

static int canon_read_all(struct canon_reader *r, const char *text, size_t len)
{
    auto_free char *copy = str_dup_n(text, len);
    auto_buf again = { 0 };

    if (canon_read_lines(r, copy) < 0)
        return -1;
    if (!canon_rules_are_valid(r->p->network.rules, false) || !canon_rules_are_valid(r->f->network_denials, true))
        return err_set(r->err, ERR_PROTOCOL, "a rule of a canonical policy is not valid");
    canon_write(r->p, r->f, &again);
    if (again.len != len || memcmp(again.data, text, len) != 0)
        return err_set(r->err, ERR_PROTOCOL, "a canonical policy is not in canonical form");
    return 0;
}

int canon_parse(const char *text, size_t len, struct policy *ret_policy, struct operator_limits *ret_floor,
                struct err *err)
{
    auto_free struct policy *p = mem_new(struct policy); /* too large for the stack */
    struct operator_limits f = { 0 };
    struct canon_reader r = { p, &f, false, err };

    if (len > CANON_MAX || memchr(text, '\0', len))
        return err_set(err, ERR_PROTOCOL, "a canonical policy is too long (%zu bytes) or contains a NUL", len);
    if (canon_read_all(&r, text, len) < 0) {
        policy_done(p);
        operator_limits_done(&f);
        return -1;
    }
    *ret_policy = *p;
    *ret_floor = f;
    return 0;
}
