#include "polfile/srt.h"

#include "base/mem.h"
#include "base/str.h"
#include "doc/doc.h"
#include "polfile/schema.h"

struct remark {
    uint32_t line, col;
    char *text;
};

struct import {
    const char *file;
    struct remark *remarks;
    size_t nremarks;
    int lost; /* settings without an equivalent */
    struct buf read_only, hide;
    char *workspace; /* path of the one writable directory */
};

enum fate { KEPT, HOLDS, LOST };

static bool after(const struct remark *a, const struct remark *b)
{
    return a->line > b->line || (a->line == b->line && a->col > b->col);
}

static void say(struct import *im, const struct doc *d, enum fate fate, const char *what, const char *text)
{
    static const char *const words[] = { [KEPT] = "kept", [HOLDS] = "holds already", [LOST] = "no equivalent" };

    const char *value = d->kind == DOC_TEXT ? d->text : NULL;
    struct remark r = { d->line, d->col,
                        str_printf("%s%s%.100s%s: %s: %s", what, value ? " '" : "", value ? value : "",
                                   value ? "'" : "", words[fate], text) };

    str_tame(r.text);
    im->remarks = mem_resize(im->remarks, im->nremarks + 1, sizeof(*im->remarks));
    size_t at = im->nremarks++;
    for (; at > 0 && after(&im->remarks[at - 1], &r); at--) /* in the order of the file */
        im->remarks[at] = im->remarks[at - 1];
    im->remarks[at] = r;
    im->lost += fate == LOST;
}

/* The next character of well-formed UTF-8, which is all that the reader of documents lets through. */
static uint32_t next_char(const unsigned char **s)
{
    uint32_t c = *(*s)++;
    int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;

    c &= more == 3 ? 0x07u : more == 2 ? 0x0fu : more == 1 ? 0x1fu : 0xffu;
    while (more-- > 0 && **s)
        c = c << 6 | (*(*s)++ & 0x3fu);
    return c;
}

/* A scalar of YAML that is read back as the same text, whatever is in it. */
static void quoted(struct buf *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    buf_adds(out, "\"");
    while (*s) {
        uint32_t c = next_char(&s);

        if (c == '"' || c == '\\')
            buf_addf(out, "\\%c", (int)c);
        else if (c >= ' ' && c < 0x7f)
            buf_addf(out, "%c", (int)c);
        else
            buf_addf(out, "\\U%08" PRIX32, c);
    }
    buf_adds(out, "\"");
}

static bool has_glob(const char *s)
{
    return s[strcspn(s, "*?[")] != '\0';
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void deny_read(struct import *im, const struct doc *d)
{
    static const char *const system[] = { "/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/ssl/" };
    const char *what = "filesystem.denyRead", *t = d->text;

    while (str_starts(t, "./"))
        t += 2;
    bool inside = t[0] != '/' && t[0] != '~' && !str_starts(t, "..");
    if (has_glob(t)) {
        bool seen = im->workspace && (inside || t[0] == '/');

        say(im, d, seen ? LOST : HOLDS, what,
            seen ? "patterns cannot be hidden; name what lies in the workspace one by one under filesystem.hide"
                 : "a sandbox sees nothing of the host but the system and what the policy binds");
        return;
    }
    if (im->workspace && inside) {
        auto_free char *dst = str_printf("/workspace/%s", t);

        buf_adds(&im->hide, "    - ");
        quoted(&im->hide, dst);
        buf_adds(&im->hide, "\n");
        say(im, d, KEPT, what, "hidden in the workspace");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(system); i++)
        if (str_starts(d->text, system[i])) {
            buf_adds(&im->hide, "    - ");
            quoted(&im->hide, d->text);
            buf_adds(&im->hide, "\n");
            say(im, d, KEPT, what, "hidden");
            return;
        }
    say(im, d, HOLDS, what, "a sandbox sees it only if it lies in the workspace or is bound");
}

static void allow_write(struct import *im, const struct doc *d)
{
    const char *what = "filesystem.allowWrite";

    if (str_eq(d->text, "/tmp") || str_starts(d->text, "/tmp/") || str_starts(d->text, "/private/tmp") ||
        str_starts(d->text, "/dev/")) {
        say(im, d, HOLDS, what, "/tmp and devices of its own are writable in every sandbox");
    } else if (d->text[0] == '~' || has_glob(d->text)) {
        say(im, d, LOST, what, "write the directory out as filesystem.workspace.path");
    } else if (im->workspace) {
        say(im, d, LOST, what, "a sandbox has one writable directory, and it is taken by an earlier line");
    } else {
        im->workspace = str_dup(d->text);
        say(im, d, KEPT, what, "it becomes /workspace, the working directory");
    }
}

static void deny_write(struct import *im, const struct doc *d)
{
    const char *what = "filesystem.denyWrite", *t = d->text;

    while (str_starts(t, "./"))
        t += 2;
    if (!im->workspace) {
        say(im, d, HOLDS, what, "only /workspace and /tmp are writable");
    } else if (has_glob(t) || t[0] == '~' || str_starts(t, "..")) {
        say(im, d, LOST, what, "patterns cannot be mounted; name the files one by one");
    } else if (t[0] == '/') {
        say(im, d, HOLDS, what,
            "only the workspace and /tmp are writable; if it lies in the workspace, name it relative to it");
    } else {
        buf_adds(&im->read_only, "    - source: ");
        quoted(&im->read_only, t);
        buf_adds(&im->read_only, "\n      target: ");
        auto_free char *dst = str_printf("/workspace/%s", t);
        quoted(&im->read_only, dst);
        buf_adds(&im->read_only, "\n");
        say(im, d, KEPT, what, "bound read-only over its place in the workspace; it has to exist");
    }
}

static void allow_read(struct import *im, const struct doc *d)
{
    const char *what = "filesystem.allowRead";

    if (has_glob(d->text) || d->text[0] == '~') {
        say(im, d, LOST, what, "write the directory out under filesystem.readOnly");
        return;
    }
    buf_adds(&im->read_only, "    - source: ");
    quoted(&im->read_only, d->text);
    buf_adds(&im->read_only, "\n      target: ");
    auto_free char *dst = str_printf("/mnt/%s", *last_name(d->text) ? last_name(d->text) : "data");
    quoted(&im->read_only, dst);
    buf_adds(&im->read_only, "\n");
    say(im, d, KEPT, what, "shown read-only below /mnt");
}

static void allowed_domain(struct import *im, const struct doc *d)
{
    say(im, d, LOST, "network.allowedDomains", "a sandbox of this version has no way out at all");
}

static void denied_domain(struct import *im, const struct doc *d)
{
    say(im, d, HOLDS, "network.deniedDomains", "no domain can be reached");
}

static void unix_socket(struct import *im, const struct doc *d)
{
    say(im, d, LOST, "network.allowUnixSockets", "sockets of the host are not visible in a sandbox");
}

static void each(struct import *im, const struct doc *list, void (*fn)(struct import *, const struct doc *))
{
    if (list->kind != DOC_LIST) {
        say(im, list, LOST, list->key, "a list was expected, so it was not understood");
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].kind == DOC_TEXT)
            fn(im, &list->items[i]);
        else
            say(im, &list->items[i], LOST, list->key, "a text was expected, so it was not understood");
    }
}

static const struct {
    const char *section, *key; /* a NULL key: the section itself is the setting */
    void (*fn)(struct import *, const struct doc *);
    enum fate fate;
    const char *text;
} settings[] = {
    /* allowWrite first: the others ask whether there is a workspace */
    { "filesystem", "allowWrite", allow_write, KEPT, NULL },
    { "filesystem", "denyWrite", deny_write, KEPT, NULL },
    { "filesystem", "denyRead", deny_read, KEPT, NULL },
    { "filesystem", "allowRead", allow_read, KEPT, NULL },
    { "filesystem", "allowGitConfig", NULL, LOST, "files of git are as writable as the directory they lie in" },
    { "network", "allowedDomains", allowed_domain, KEPT, NULL },
    { "network", "deniedDomains", denied_domain, KEPT, NULL },
    { "network", "allowUnixSockets", unix_socket, KEPT, NULL },
    { "network", "allowAllUnixSockets", NULL, HOLDS, "Unix sockets work inside; those of the host are not visible" },
    { "network", "allowLocalBinding", NULL, HOLDS, "a sandbox has a loopback of its own, and may bind to it" },
    { "network", "httpProxyPort", NULL, LOST, "there is no proxy in this version" },
    { "network", "socksProxyPort", NULL, LOST, "there is no proxy in this version" },
    { "network", "mitmProxy", NULL, LOST, "there is no proxy in this version" },
    { "ignoreViolations", NULL, NULL, LOST, "what is refused is always reported" },
    { "enableWeakerNestedSandbox", NULL, NULL, LOST, "cove raises every wall or refuses; there is no weaker sandbox" },
    { "enableWeakerNetworkIsolation", NULL, NULL, LOST, "cove raises every wall or refuses" },
    { "allowPty", NULL, NULL, HOLDS, "terminals work inside: cove run -t" },
    { "ripgrep", NULL, NULL, HOLDS, "cove does not search for files to protect" },
    { "mandatoryDenySearchDepth", NULL, NULL, HOLDS, "cove does not search for files to protect" },
    { "seccomp", NULL, NULL, HOLDS, "the system call filter is part of cove" },
};

static bool known(const char *section, const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        if (str_eq(settings[i].section, section) && (!key || !settings[i].key || str_eq(settings[i].key, key)))
            return true;
    return false;
}

static void walk(struct import *im, const struct doc *top)
{
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        const struct doc *section = doc_find(top, settings[i].section);
        const struct doc *d = section && settings[i].key ? doc_find(section, settings[i].key) : section;

        if (!d)
            continue;
        if (settings[i].fn)
            each(im, d, settings[i].fn);
        else
            say(im, d, settings[i].fate, settings[i].key ? settings[i].key : settings[i].section, settings[i].text);
    }
    for (size_t i = 0; i < top->n; i++) {
        const struct doc *section = &top->items[i];

        if (!known(section->key, NULL)) {
            say(im, section, LOST, section->key, "cove does not know this setting");
            continue;
        }
        for (size_t k = 0; section->kind == DOC_MAP && k < section->n; k++)
            if (!known(section->key, section->items[k].key))
                say(im, &section->items[k], LOST, section->items[k].key, "cove does not know this setting");
    }
}

static void write_policy(const struct import *im, struct buf *out)
{
    buf_adds(out, "# Made from ");
    quoted(out, im->file);
    buf_adds(out, ", settings of sandbox-runtime, by `cove policy import`.\n");
    buf_adds(out, "version: 1\nname: imported\nextends: standard\nnetwork: none\n");
    if (!im->workspace && !im->read_only.len && !im->hide.len)
        return;
    buf_adds(out, "filesystem:\n");
    if (im->workspace) {
        buf_adds(out, "  workspace:\n    mode: readWrite\n    path: ");
        quoted(out, im->workspace);
        buf_adds(out, "\n");
    }
    if (im->read_only.len)
        buf_addf(out, "  readOnly:\n%s", im->read_only.data);
    if (im->hide.len)
        buf_addf(out, "  hide:\n%s", im->hide.data);
}

int srt_import(const char *data, size_t len, const char *file, struct buf *out, struct buf *said, struct problems *pr)
{
    struct import im = { .file = file };
    struct doc top = { 0 };
    int rc = -1;

    if (doc_parse(data, len, &schema_rules, &top, pr) < 0)
        return -1;
    if (top.kind != DOC_MAP) {
        problems_add(pr, ERR_POLICY_VALUE, top.line, top.col, "Name a settings file of sandbox-runtime.",
                     "settings are a mapping, and this is %s", doc_kind_name(&top));
    } else if (pr->n == 0) {
        walk(&im, &top);
        write_policy(&im, out);
        for (size_t i = 0; i < im.nremarks; i++)
            buf_addf(said, "%s:%" PRIu32 ": %s\n", file, im.remarks[i].line, im.remarks[i].text);
        rc = im.lost;
    }
    for (size_t i = 0; i < im.nremarks; i++)
        free(im.remarks[i].text);
    free(im.remarks);
    doc_done(&top);
    buf_done(&im.read_only);
    buf_done(&im.hide);
    free(im.workspace);
    return rc;
}
