/* The file is a tree of mappings; the path of a key is the name of a setting. A text in the place
 * of a mapping that has a setting `url` is that setting: "store: sqlite:PATH". A key that is
 * neither a setting nor the beginning of one is an error at its line, with the nearest name of a
 * setting. */
#include "main/conf/conf_file.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"
#include "core/doc/doc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static const struct doc_rules conf_doc_rules = { .syntax_error = ERR_CONF_SYNTAX };

/* "http." begins "http.maxBody". */
static bool conf_begins_setting(const char *path)
{
    for (unsigned s = 0; s < SETTING_COUNT; s++) {
        const char *rest = setting_info((enum conf_setting)s)->name;

        if (str_eat(&rest, path) && *rest == '.')
            return true;
    }
    return false;
}

static int conf_find_setting(const char *path)
{
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        if (str_eq(setting_info((enum conf_setting)s)->name, path))
            return (int)s;
    return -1;
}

static void conf_unknown_key(const struct doc *item, const char *path, struct problems *pr)
{
    struct suggest near;

    suggest_init(&near, path);
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        suggest_offer(&near, setting_info((enum conf_setting)s)->name);
    if (near.best)
        problems_add(pr, ERR_CONF_KEY, item->key_line, item->key_col, NULL,
                     "there is no setting '%.80s'; did you mean '%s'?", path, near.best);
    else
        problems_add(pr, ERR_CONF_KEY, item->key_line, item->key_col, NULL,
                     "there is no setting '%.80s'; 'cove serve --help' lists the settings", path);
}

/* Turns a list into the text that a variable would have. */
static int conf_join_list(const struct doc *item, struct buf *out)
{
    for (size_t i = 0; i < item->n; i++) {
        if (item->items[i].kind != DOC_TEXT || strchr(item->items[i].text, ','))
            return -1;
        buf_addf(out, "%s%s", i ? "," : "", item->items[i].text);
    }
    return 0;
}

static void conf_read_setting(struct conf *c, enum conf_setting s, const struct doc *item, struct problems *pr)
{
    const struct setting_info *info = setting_info(s);
    auto_buf list = { 0 };
    struct err err = { 0 };

    buf_adds(&list, "");
    if (item->kind == DOC_MAP ||
        (item->kind == DOC_LIST && (info->kind != SETTING_LIST || conf_join_list(item, &list) < 0)))
        problems_add(pr, ERR_CONF_VALUE, item->line, item->col, NULL, "%s must be %s, not %s", info->name,
                     info->kind == SETTING_LIST ? "a list of texts" : "a single value", doc_kind_name(item));
    else if (conf_set(c, s, item->kind == DOC_LIST ? list.data : item->text, item->key_line, &err) < 0)
        problems_add(pr, err.id, item->line, item->col, NULL, "%s", err.msg);
}

static void conf_read_map(struct conf *c, const struct doc *map, const char *prefix, struct problems *pr)
{
    for (size_t i = 0; i < map->n; i++) {
        const struct doc *item = &map->items[i];
        auto_free char *path = str_printf("%s%s%s", prefix, *prefix ? "." : "", item->key);
        auto_free char *short_of = str_printf("%s.url", path);
        int s = conf_find_setting(item->kind == DOC_TEXT && conf_begins_setting(path) ? short_of : path);

        if (s >= 0)
            conf_read_setting(c, (enum conf_setting)s, item, pr);
        else if (item->kind == DOC_MAP && conf_begins_setting(path))
            conf_read_map(c, item, path, pr);
        else if (conf_begins_setting(path))
            problems_add(pr, ERR_CONF_VALUE, item->line, item->col, NULL, "%s must be a mapping of settings", path);
        else
            conf_unknown_key(item, path, pr);
    }
}

int conf_read(struct conf *c, const char *data, size_t len, struct problems *pr)
{
    struct doc top;

    if (doc_parse(data, len, &conf_doc_rules, &top, pr) < 0)
        return -1;
    if (top.kind == DOC_MAP)
        conf_read_map(c, &top, "", pr);
    else
        problems_add(pr, ERR_CONF_SYNTAX, top.line, top.col, "Write settings as 'name: value'.",
                     "the file is %s, not a mapping", doc_kind_name(&top));
    doc_done(&top);
    return pr->n ? -1 : 0;
}

static int conf_check_file_safe(int fd, struct problems *pr)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        problems_add(pr, ERR_CONF_UNSAFE, 0, 0, "Pass the path of a regular file.", "not a regular file");
    else if (st.st_uid != 0 && st.st_uid != geteuid())
        problems_add(pr, ERR_CONF_UNSAFE, 0, 0, NULL, "the file belongs to uid %u", st.st_uid);
    else if (st.st_mode & (S_IWGRP | S_IWOTH))
        problems_add(pr, ERR_CONF_UNSAFE, 0, 0, NULL, "other users can write the file (mode %04o)",
                     st.st_mode & 07777u);
    return pr->n ? -1 : 0;
}

int conf_read_file(struct conf *c, const char *path, struct problems *pr)
{
    bool asked = path != NULL;

    path = asked ? path : CONF_FILE;
    free(c->file);
    c->file = str_dup(path);
    pr->file = c->file;
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && !asked) {
        free(take_ptr(&c->file));
        return 0;
    }
    if (fd < 0) {
        struct err err;

        err_sys(&err, ERR_MISSING, "cannot be opened");
        problems_add(pr, errno == ENOENT ? ERR_MISSING : ERR_DENIED, 0, 0, NULL, "%s", err.msg);
        return -1;
    }
    if (conf_check_file_safe(fd, pr) < 0)
        return -1;
    auto_free char *data = mem_alloc(DOC_BYTES_MAX + 2);
    ssize_t n = fd_read_full(fd, data, DOC_BYTES_MAX + 1);
    if (n < 0) {
        problems_add(pr, ERR_SYS, 0, 0, NULL, "cannot be read");
        return -1;
    }
    return conf_read(c, data, (size_t)n, pr);
}
