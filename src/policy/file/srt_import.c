#include "policy/file/srt_import.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/doc.h"
#include "policy/closed_ranges.h"
#include "policy/egress_rules.h"
#include "policy/file/schema.h"

struct srt_remark {
    uint32_t line, col;
    char *text;
};

struct srt_conversion {
    const char *file;
    struct srt_remark *remarks;
    size_t nremarks;
    int lost_count; /* settings without an equivalent */
    struct buf read_only, hide, allow, deny;
    char *workspace; /* path of the only writable directory */
};

enum srt_setting_fate { KEPT, HOLDS, LOST };

static bool srt_remark_is_after(const struct srt_remark *a, const struct srt_remark *b)
{
    return a->line > b->line || (a->line == b->line && a->col > b->col);
}

static void srt_add_remark(struct srt_conversion *im, const struct doc *d, enum srt_setting_fate fate, const char *what,
                           const char *text)
{
    static const char *const words[] = { [KEPT] = "kept", [HOLDS] = "already holds", [LOST] = "no equivalent" };

    const char *value = d->kind == DOC_TEXT ? d->text : NULL;
    struct srt_remark r = { d->line, d->col,
                            str_printf("%s%s%.100s%s: %s: %s", what, value ? " '" : "", value ? value : "",
                                       value ? "'" : "", words[fate], text) };

    str_strip_control_chars(r.text);
    im->remarks = mem_resize(im->remarks, im->nremarks + 1, sizeof(*im->remarks));
    size_t at = im->nremarks++;
    for (; at > 0 && srt_remark_is_after(&im->remarks[at - 1], &r); at--) /* in file order */
        im->remarks[at] = im->remarks[at - 1];
    im->remarks[at] = r;
    im->lost_count += fate == LOST;
}

/* Returns the next character of valid UTF-8; the document reader refuses invalid UTF-8. */
static uint32_t srt_next_char(const unsigned char **s)
{
    uint32_t c = *(*s)++;
    int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;

    c &= more == 3 ? 0x07u : more == 2 ? 0x0fu : more == 1 ? 0x1fu : 0xffu;
    while (more-- > 0 && **s)
        c = c << 6 | (*(*s)++ & 0x3fu);
    return c;
}

/* Writes a YAML scalar that is read back as the same text, whatever it contains. */
static void srt_put_quoted(struct buf *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    buf_adds(out, "\"");
    while (*s) {
        uint32_t c = srt_next_char(&s);

        if (c == '"' || c == '\\')
            buf_addf(out, "\\%c", (int)c);
        else if (c >= ' ' && c < 0x7f)
            buf_addf(out, "%c", (int)c);
        else
            buf_addf(out, "\\U%08" PRIX32, c);
    }
    buf_adds(out, "\"");
}

static bool srt_has_glob(const char *s)
{
    return s[strcspn(s, "*?[")] != '\0';
}

static const char *srt_last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void srt_deny_read(struct srt_conversion *im, const struct doc *d)
{
    static const char *const system[] = { "/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/ssl/" };
    const char *what = "filesystem.denyRead", *t = d->text;

    while (str_starts(t, "./"))
        t += 2;
    bool inside = t[0] != '/' && t[0] != '~' && !str_starts(t, "..");
    if (srt_has_glob(t)) {
        bool seen = im->workspace && (inside || t[0] == '/');

        srt_add_remark(im, d, seen ? LOST : HOLDS, what,
                       seen ? "patterns cannot be hidden; list each path of the workspace under filesystem.hide"
                            : "a sandbox sees only the system and the paths that the policy binds");
        return;
    }
    if (im->workspace && inside) {
        auto_free char *dst = str_printf("/workspace/%s", t);

        buf_adds(&im->hide, "    - ");
        srt_put_quoted(&im->hide, dst);
        buf_adds(&im->hide, "\n");
        srt_add_remark(im, d, KEPT, what, "hidden in the workspace");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(system); i++)
        if (str_starts(d->text, system[i])) {
            buf_adds(&im->hide, "    - ");
            srt_put_quoted(&im->hide, d->text);
            buf_adds(&im->hide, "\n");
            srt_add_remark(im, d, KEPT, what, "hidden");
            return;
        }
    srt_add_remark(im, d, HOLDS, what, "a sandbox sees it only if it is in the workspace or bound");
}

static void srt_allow_write(struct srt_conversion *im, const struct doc *d)
{
    const char *what = "filesystem.allowWrite";

    if (str_eq(d->text, "/tmp") || str_starts(d->text, "/tmp/") || str_starts(d->text, "/private/tmp") ||
        str_starts(d->text, "/dev/")) {
        srt_add_remark(im, d, HOLDS, what, "every sandbox has its own writable /tmp and devices");
    } else if (d->text[0] == '~' || srt_has_glob(d->text)) {
        srt_add_remark(im, d, LOST, what, "write the full path as filesystem.workspace.path");
    } else if (im->workspace) {
        srt_add_remark(im, d, LOST, what, "a sandbox has one writable directory, which an earlier line already sets");
    } else {
        im->workspace = str_dup(d->text);
        srt_add_remark(im, d, KEPT, what, "it becomes /workspace, the working directory");
    }
}

static void srt_deny_write(struct srt_conversion *im, const struct doc *d)
{
    const char *what = "filesystem.denyWrite", *t = d->text;

    while (str_starts(t, "./"))
        t += 2;
    if (!im->workspace) {
        srt_add_remark(im, d, HOLDS, what, "only /workspace and /tmp are writable");
    } else if (srt_has_glob(t) || t[0] == '~' || str_starts(t, "..")) {
        srt_add_remark(im, d, LOST, what, "patterns cannot be mounted; list each file");
    } else if (t[0] == '/') {
        srt_add_remark(im, d, HOLDS, what,
                       "only the workspace and /tmp are writable; if it is in the workspace, give its relative path");
    } else {
        buf_adds(&im->read_only, "    - source: ");
        srt_put_quoted(&im->read_only, t);
        buf_adds(&im->read_only, "\n      target: ");
        auto_free char *dst = str_printf("/workspace/%s", t);
        srt_put_quoted(&im->read_only, dst);
        buf_adds(&im->read_only, "\n");
        srt_add_remark(im, d, KEPT, what, "mounted read-only in the workspace; it must exist");
    }
}

static void srt_allow_read(struct srt_conversion *im, const struct doc *d)
{
    const char *what = "filesystem.allowRead";

    if (srt_has_glob(d->text) || d->text[0] == '~') {
        srt_add_remark(im, d, LOST, what, "write the full path under filesystem.readOnly");
        return;
    }
    buf_adds(&im->read_only, "    - source: ");
    srt_put_quoted(&im->read_only, d->text);
    buf_adds(&im->read_only, "\n      target: ");
    auto_free char *dst = str_printf("/mnt/%s", *srt_last_name(d->text) ? srt_last_name(d->text) : "data");
    srt_put_quoted(&im->read_only, dst);
    buf_adds(&im->read_only, "\n");
    srt_add_remark(im, d, KEPT, what, "mounted read-only below /mnt");
}

/* A target that a policy accepts: the same name, or an address that is not closed. */
static bool srt_domain_is_valid(const char *domain, enum egress_action action, struct err *err)
{
    auto_buf line = { 0 };
    struct ip_prefix p;
    const char *closed = ip_prefix_parse(domain, strlen(domain), &p) ? closed_range_of(&p.address, NULL, 0) : NULL;

    if (closed && action == EGRESS_ALLOW)
        err_set(err, ERR_EGRESS_RULE, "addresses of the range %s are closed for every sandbox", closed);
    return !(closed && action == EGRESS_ALLOW) && egress_rules_add_line(&line, action, domain, NULL, NULL, err) == 0;
}

static void srt_allowed_domain(struct srt_conversion *im, const struct doc *d)
{
    struct err err = { 0 };
    const char *what = "network.allowedDomains";

    if (!srt_domain_is_valid(d->text, EGRESS_ALLOW, &err)) {
        srt_add_remark(im, d, LOST, what, err.msg);
        return;
    }
    buf_adds(&im->allow, "    - ");
    srt_put_quoted(&im->allow, d->text);
    buf_adds(&im->allow, "\n");
    srt_add_remark(im, d, KEPT, what, "allowed on ports 80 and 443");
}

/* A denial of srt holds on every port, and before every allowance. */
static void srt_denied_domain(struct srt_conversion *im, const struct doc *d)
{
    struct err err = { 0 };
    const char *what = "network.deniedDomains";
    auto_free char *target = str_printf("%s:*", d->text);

    if (!im->allow.len) {
        srt_add_remark(im, d, HOLDS, what, "no domain can be reached");
        return;
    }
    if (!srt_domain_is_valid(target, EGRESS_DENY, &err)) {
        srt_add_remark(im, d, LOST, what, err.msg);
        return;
    }
    buf_adds(&im->deny, "    - ");
    srt_put_quoted(&im->deny, target);
    buf_adds(&im->deny, "\n");
    srt_add_remark(im, d, KEPT, what, "denied on every port");
}

static void srt_unix_socket(struct srt_conversion *im, const struct doc *d)
{
    srt_add_remark(im, d, LOST, "network.allowUnixSockets", "sockets of the host are not visible in a sandbox");
}

static void srt_each_item(struct srt_conversion *im, const struct doc *list,
                          void (*fn)(struct srt_conversion *, const struct doc *))
{
    if (list->kind != DOC_LIST) {
        srt_add_remark(im, list, LOST, list->key, "ignored, because it is not a list");
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].kind == DOC_TEXT)
            fn(im, &list->items[i]);
        else
            srt_add_remark(im, &list->items[i], LOST, list->key, "ignored, because it is not a text");
    }
}

static const struct {
    const char *section, *key; /* a NULL key: the section itself is the setting */
    void (*fn)(struct srt_conversion *, const struct doc *);
    enum srt_setting_fate fate;
    const char *text;
} srt_settings[] = {
    /* allowWrite first: the other settings depend on whether there is a workspace */
    { "filesystem", "allowWrite", srt_allow_write, KEPT, NULL },
    { "filesystem", "denyWrite", srt_deny_write, KEPT, NULL },
    { "filesystem", "denyRead", srt_deny_read, KEPT, NULL },
    { "filesystem", "allowRead", srt_allow_read, KEPT, NULL },
    { "filesystem", "allowGitConfig", NULL, LOST, "git files are as writable as their directory" },
    { "network", "allowedDomains", srt_allowed_domain, KEPT, NULL },
    { "network", "deniedDomains", srt_denied_domain, KEPT, NULL },
    { "network", "allowUnixSockets", srt_unix_socket, KEPT, NULL },
    { "network", "allowAllUnixSockets", NULL, HOLDS, "Unix sockets work inside; those of the host are not visible" },
    { "network", "allowLocalBinding", NULL, HOLDS, "a sandbox has its own loopback and may bind to it" },
    { "network", "httpProxyPort", NULL, LOST, "a sandbox uses the proxy of cove" },
    { "network", "socksProxyPort", NULL, LOST, "a sandbox uses the proxy of cove, which has no SOCKS" },
    { "network", "mitmProxy", NULL, LOST, "the proxy of cove does not decrypt connections" },
    { "ignoreViolations", NULL, NULL, LOST, "denials are always reported" },
    { "enableWeakerNestedSandbox", NULL, NULL, LOST, "cove sets up every wall or refuses; there is no weaker sandbox" },
    { "enableWeakerNetworkIsolation", NULL, NULL, LOST, "cove sets up every wall or refuses" },
    { "allowPty", NULL, NULL, HOLDS, "terminals work in a sandbox: cove run -t" },
    { "ripgrep", NULL, NULL, HOLDS, "cove does not search for files to protect" },
    { "mandatoryDenySearchDepth", NULL, NULL, HOLDS, "cove does not search for files to protect" },
    { "seccomp", NULL, NULL, HOLDS, "the system call filter is part of cove" },
};

static bool srt_setting_is_known(const char *section, const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(srt_settings); i++)
        if (str_eq(srt_settings[i].section, section) &&
            (!key || !srt_settings[i].key || str_eq(srt_settings[i].key, key)))
            return true;
    return false;
}

static void srt_convert_settings(struct srt_conversion *im, const struct doc *top)
{
    for (size_t i = 0; i < ARRAY_LEN(srt_settings); i++) {
        const struct doc *section = doc_find(top, srt_settings[i].section);
        const struct doc *d = section && srt_settings[i].key ? doc_find(section, srt_settings[i].key) : section;

        if (!d)
            continue;
        if (srt_settings[i].fn)
            srt_each_item(im, d, srt_settings[i].fn);
        else
            srt_add_remark(im, d, srt_settings[i].fate,
                           srt_settings[i].key ? srt_settings[i].key : srt_settings[i].section, srt_settings[i].text);
    }
    for (size_t i = 0; i < top->n; i++) {
        const struct doc *section = &top->items[i];

        if (!srt_setting_is_known(section->key, NULL)) {
            srt_add_remark(im, section, LOST, section->key, "unknown setting");
            continue;
        }
        for (size_t k = 0; section->kind == DOC_MAP && k < section->n; k++)
            if (!srt_setting_is_known(section->key, section->items[k].key))
                srt_add_remark(im, &section->items[k], LOST, section->items[k].key, "unknown setting");
    }
}

static void srt_write_policy(const struct srt_conversion *im, struct buf *out)
{
    buf_adds(out, "# Made from ");
    srt_put_quoted(out, im->file);
    buf_adds(out, ", settings of sandbox-runtime, by `cove policy import`.\n");
    buf_adds(out, "version: 1\nname: imported\nextends: standard\n");
    if (im->allow.len)
        buf_addf(out, "network:\n%s%s  allow:\n%s", im->deny.len ? "  deny:\n" : "", im->deny.len ? im->deny.data : "",
                 im->allow.data);
    else
        buf_adds(out, "network: none\n");
    if (!im->workspace && !im->read_only.len && !im->hide.len)
        return;
    buf_adds(out, "filesystem:\n");
    if (im->workspace) {
        buf_adds(out, "  workspace:\n    mode: readWrite\n    path: ");
        srt_put_quoted(out, im->workspace);
        buf_adds(out, "\n");
    }
    if (im->read_only.len)
        buf_addf(out, "  readOnly:\n%s", im->read_only.data);
    if (im->hide.len)
        buf_addf(out, "  hide:\n%s", im->hide.data);
}

int srt_import(const char *data, size_t len, const char *file, struct buf *out, struct buf *said, struct problems *pr)
{
    struct srt_conversion im = { .file = file };
    struct doc top = { 0 };
    int rc = -1;

    if (doc_parse(data, len, &schema_rules, &top, pr) < 0)
        return -1;
    if (top.kind != DOC_MAP) {
        problems_add(pr, ERR_POLICY_VALUE, top.line, top.col, "Name a settings file of sandbox-runtime.",
                     "settings must be a mapping, but this is %s", doc_kind_name(&top));
    } else if (pr->n == 0) {
        srt_convert_settings(&im, &top);
        srt_write_policy(&im, out);
        for (size_t i = 0; i < im.nremarks; i++)
            buf_addf(said, "%s:%" PRIu32 ": %s\n", file, im.remarks[i].line, im.remarks[i].text);
        rc = im.lost_count;
    }
    for (size_t i = 0; i < im.nremarks; i++)
        free(im.remarks[i].text);
    free(im.remarks);
    doc_done(&top);
    buf_done(&im.read_only);
    buf_done(&im.hide);
    buf_done(&im.allow);
    buf_done(&im.deny);
    free(im.workspace);
    return rc;
}
