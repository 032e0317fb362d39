/* The parser is a state machine with five states that is driven by the input, so an archive of any
 * size, in pieces of any size, needs memory for only one header block, one metadata record and one
 * entry.
 *
 * A header's checksum is always checked: an archive that lost a byte stops there instead of being
 * misread. All other fields of a block are untrusted. Metadata for the next entry is discarded when
 * that entry begins. */
#include "inside/runtime/tar.h"

#include "core/base/str.h"

#include <assert.h>
#include <stdio.h>

/* Offsets and sizes of the fields of a header. */
enum {
    NAME = 0,
    NAME_LEN = 100,
    MODE = 100,
    MODE_LEN = 8,
    UID = 108,
    GID = 116,
    ID_FIELD_LEN = 8,
    SIZE = 124,
    SIZE_LEN = 12,
    MTIME = 136,
    MTIME_LEN = 12,
    CHKSUM = 148,
    CHKSUM_LEN = 8,
    TYPE = 156,
    LINK = 157,
    LINK_LEN = 100,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_LEN = 155,
};

void tar_parser_init(struct tar_parser *t, uint64_t bytes_max, const struct tar_ops *ops, void *arg)
{
    memset(t, 0, sizeof(*t));
    t->bytes_max = bytes_max;
    t->ops = ops;
    t->arg = arg;
}

void tar_parser_done(struct tar_parser *t)
{
    buf_done(&t->meta);
}

int tar_clean_path(char *path, struct err *err)
{
    size_t depth = 0;
    char *to = path;

    if (path[0] == '/')
        return err_set(err, ERR_INVALID, "the archive contains an absolute path: '%.120s'", path);
    for (const char *p = path; *p;) {
        size_t len = strcspn(p, "/");

        if (len == 2 && p[0] == '.' && p[1] == '.')
            return err_set(err, ERR_INVALID, "the archive contains a path with '..': '%.120s'", p);
        if (len > 255)
            return err_set(err, ERR_INVALID, "the archive contains a name of %zu bytes", len);
        if (len > 0 && !(len == 1 && p[0] == '.')) {
            if (++depth > TAR_DEPTH_MAX)
                return err_set(err, ERR_LIMIT, "the archive is deeper than %u directories", TAR_DEPTH_MAX);
            if (to != path)
                *to++ = '/';
            memmove(to, p, len);
            to += len;
        }
        p += len;
        p += *p == '/';
    }
    *to = '\0';
    return 0;
}

/* Numbers are octal digits between spaces or NULs, or binary if the first byte has its top bit
 * set. */
static bool tar_parse_number(const uint8_t *field, size_t len, uint64_t *ret)
{
    uint64_t v = 0;
    size_t i = 0;

    if (field[0] & 0x80) {
        if (field[0] != 0x80) /* negative, or larger than any possible size */
            return false;
        for (i = 1; i < len; i++) {
            if (v >> 55)
                return false;
            v = v << 8 | field[i];
        }
        *ret = v;
        return true;
    }
    while (i < len && field[i] == ' ')
        i++;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++) {
        if (v >> 60)
            return false;
        v = v << 3 | (uint64_t)(field[i] - '0');
    }
    for (; i < len; i++)
        if (field[i] != ' ' && field[i] != '\0')
            return false;
    *ret = v;
    return true;
}

static uint32_t tar_checksum(const uint8_t block[TAR_BLOCK])
{
    uint32_t sum = 0;

    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= CHKSUM && i < CHKSUM + CHKSUM_LEN ? ' ' : block[i];
    return sum;
}

static bool tar_block_is_zero(const uint8_t block[TAR_BLOCK])
{
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

static size_t tar_field_len(const uint8_t *field, size_t max)
{
    const uint8_t *nul = memchr(field, '\0', max);

    return nul ? (size_t)(nul - field) : max;
}

static size_t tar_padding_of(uint64_t size)
{
    return (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

static void tar_forget_meta(struct tar_parser *t)
{
    t->has_path = t->has_link = t->has_size = t->has_mtime = false;
}

/* --- metadata before an entry --- */

static int tar_set_name(char dst[TAR_PATH_MAX], const char *s, size_t len, struct err *err)
{
    if (len == 0 || len >= TAR_PATH_MAX || memchr(s, '\0', len))
        return err_set(err, ERR_INVALID, "the archive contains a name of %zu bytes or with a NUL", len);
    memcpy(dst, s, len);
    dst[len] = '\0';
    return 0;
}

static int tar_pax_number(const char *s, size_t len, bool fraction, uint64_t *ret, struct err *err)
{
    char text[32];
    const char *p = text;

    if (len < sizeof(text)) {
        memcpy(text, s, len);
        text[len] = '\0';
        if (str_eat_u64(&p, INT64_MAX, ret) && (*p == '\0' || (fraction && *p == '.')))
            return 0;
    }
    return err_set(err, ERR_INVALID, "the archive contains a malformed pax number");
}

static int tar_pax_record(struct tar_parser *t, const char *key, size_t key_len, const char *value, size_t len,
                          struct err *err)
{
    if (key_len >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return err_set(err, ERR_INVALID, "the archive contains a sparse file, which is not supported");
    if (key_len == 4 && memcmp(key, "path", 4) == 0) {
        t->has_path = true;
        return tar_set_name(t->entry.path, value, len, err);
    }
    if (key_len == 8 && memcmp(key, "linkpath", 8) == 0) {
        t->has_link = true;
        return tar_set_name(t->entry.link, value, len, err);
    }
    if (key_len == 4 && memcmp(key, "size", 4) == 0) {
        t->has_size = true;
        return tar_pax_number(value, len, false, &t->size, err);
    }
    if (key_len == 5 && memcmp(key, "mtime", 5) == 0 && len > 0 && value[0] != '-') {
        t->has_mtime = true;
        return tar_pax_number(value, len, true, &t->mtime, err);
    }
    return 0; /* owners, comments, attributes are ignored */
}

/* "LEN KEY=VALUE\n", where LEN counts all of it. */
static int tar_pax_parse(struct tar_parser *t, struct err *err)
{
    const char *p = t->meta.data, *end = p + t->meta.len;

    while (p < end) {
        const char *start = p;
        uint32_t len = 0;

        while (p < end && *p >= '0' && *p <= '9' && len <= TAR_META_MAX)
            len = len * 10 + (uint32_t)(*p++ - '0');
        if (p == start || p == end || *p != ' ' || len > (size_t)(end - start) || start + len <= p + 1 ||
            start[len - 1] != '\n')
            return err_set(err, ERR_INVALID, "the archive contains a malformed pax header");
        const char *key = p + 1, *stop = start + len - 1;
        const char *eq = memchr(key, '=', (size_t)(stop - key));
        if (!eq || eq == key)
            return err_set(err, ERR_INVALID, "the archive contains a pax record without a key");
        if (tar_pax_record(t, key, (size_t)(eq - key), eq + 1, (size_t)(stop - eq - 1), err) < 0)
            return -1;
        p = start + len;
    }
    return 0;
}

static int tar_meta_end(struct tar_parser *t, struct err *err)
{
    size_t len = t->meta.len;

    switch (t->meta_type) {
    case 'x':
        return tar_pax_parse(t, err);
    case 'L':
    case 'K':
        while (len > 0 && t->meta.data[len - 1] == '\0')
            len--;
        if (t->meta_type == 'L')
            t->has_path = true;
        else
            t->has_link = true;
        return tar_set_name(t->meta_type == 'L' ? t->entry.path : t->entry.link, t->meta.data, len, err);
    default: /* global headers contain nothing that we use */
        return 0;
    }
}

static int tar_meta_begin(struct tar_parser *t, char type, uint64_t size, struct err *err)
{
    if (size > TAR_META_MAX)
        return err_set(err, ERR_LIMIT, "the archive contains a header of %" PRIu64 " bytes", size);
    buf_clear(&t->meta);
    t->meta_type = type;
    t->content_left = size;
    t->padding = tar_padding_of(size);
    t->state = TAR_META;
    return 0;
}

/* --- entries --- */

static int tar_kind_of_type(char type, const char *path, char *ret, struct err *err)
{
    size_t len = strlen(path);

    switch (type) {
    case '\0': /* before ustar, a directory was a name that ends with a slash */
    case '0':
    case '7':
        *ret = len > 0 && path[len - 1] == '/' ? 'd' : 'f';
        return 0;
    case '1':
        *ret = 'h';
        return 0;
    case '2':
        *ret = 'l';
        return 0;
    case '5':
        *ret = 'd';
        return 0;
    case '3':
    case '4':
    case '6':
        return err_set(err, ERR_INVALID, "the archive contains a device or pipe: '%.120s'", path);
    case 'S':
        return err_set(err, ERR_INVALID, "the archive contains a sparse file, which is not supported: '%.120s'", path);
    default:
        return err_set(err, ERR_INVALID, "the archive contains an entry of unknown type 0x%02x: '%.120s'",
                       (uint8_t)type, path);
    }
}

static int tar_read_names(struct tar_parser *t, const uint8_t *b, struct err *err)
{
    struct tar_entry *e = &t->entry;
    bool ustar = memcmp(b + MAGIC, "ustar\0", 6) == 0; /* GNU's magic uses the prefix field differently */
    size_t prefix = ustar ? tar_field_len(b + PREFIX, PREFIX_LEN) : 0;
    size_t name = tar_field_len(b + NAME, NAME_LEN), link = tar_field_len(b + LINK, LINK_LEN);

    if (!t->has_path) {
        memcpy(e->path, b + PREFIX, prefix);
        e->path[prefix] = '/';
        memcpy(e->path + prefix + (prefix > 0), b + NAME, name);
        e->path[prefix + (prefix > 0) + name] = '\0';
    }
    if (!t->has_link) {
        memcpy(e->link, b + LINK, link);
        e->link[link] = '\0';
    }
    return e->path[0] ? 0 : err_set(err, ERR_INVALID, "the archive contains an entry without a name");
}

static int tar_check_link(struct tar_entry *e, struct err *err)
{
    if (e->kind != 'h' && e->kind != 'l') {
        e->link[0] = '\0';
        return 0;
    }
    if (e->link[0] == '\0')
        return err_set(err, ERR_INVALID, "the archive contains a link without a target: '%.120s'", e->path);
    if (e->kind == 'h' && (tar_clean_path(e->link, err) < 0 || e->link[0] == '\0'))
        return err_set(err, ERR_INVALID, "the archive contains a hard link to a path outside the archive: '%.120s'",
                       e->path);
    return 0;
}

static int tar_entry_begin(struct tar_parser *t, const uint8_t *b, uint64_t size, struct err *err)
{
    struct tar_entry *e = &t->entry;
    uint64_t mode, mtime;

    if (tar_read_names(t, b, err) < 0 || tar_kind_of_type((char)b[TYPE], e->path, &e->kind, err) < 0 ||
        tar_clean_path(e->path, err) < 0 || tar_check_link(e, err) < 0)
        return -1;
    if (!tar_parse_number(b + MODE, MODE_LEN, &mode) || !tar_parse_number(b + MTIME, MTIME_LEN, &mtime))
        return err_set(err, ERR_INVALID, "the archive contains an invalid mode or time: '%.120s'", e->path);
    if (e->path[0] == '\0' && e->kind != 'd')
        return err_set(err, ERR_INVALID, "the archive contains an entry without a name");
    if (++t->entries > TAR_ENTRIES_MAX)
        return err_set(err, ERR_LIMIT, "the archive contains more than %u entries", TAR_ENTRIES_MAX);
    e->mode = (uint32_t)mode & 0777u;
    e->mtime = t->has_mtime ? t->mtime : mtime;
    e->size = e->kind == 'f' ? (t->has_size ? t->size : size) : 0;
    if (e->kind == 'h' && (t->has_size ? t->size : size) > 0)
        return err_set(err, ERR_INVALID, "the archive contains a hard link with content: '%.120s'", e->path);
    tar_forget_meta(t);
    if (e->size > t->bytes_max - t->bytes)
        return err_set(err, ERR_LIMIT, "the archive contains more than %" PRIu64 " bytes", t->bytes_max);
    t->bytes += e->size;
    if (t->ops->on_entry(t->arg, e, err) < 0)
        return -1;
    t->content_left = e->size;
    t->padding = tar_padding_of(e->size);
    t->state = e->kind == 'f' ? TAR_CONTENT : TAR_HEADER;
    return 0;
}

static int tar_read_header(struct tar_parser *t, struct err *err)
{
    const uint8_t *b = t->block;
    uint64_t sum, size;

    if (tar_block_is_zero(b)) {
        t->state = TAR_END;
        return 0;
    }
    if (!tar_parse_number(b + CHKSUM, CHKSUM_LEN, &sum) || sum != tar_checksum(b))
        return err_set(err, ERR_INVALID, "this is not a tar archive, or it is damaged");
    if (!tar_parse_number(b + SIZE, SIZE_LEN, &size))
        return err_set(err, ERR_INVALID, "the archive contains an entry with an invalid size");
    switch (b[TYPE]) {
    case 'x':
    case 'g':
    case 'L':
    case 'K':
        return tar_meta_begin(t, (char)b[TYPE], size, err);
    default:
        return tar_entry_begin(t, b, size, err);
    }
}

/* --- state machine --- */

static int tar_content_end(struct tar_parser *t, struct err *err)
{
    bool meta = t->state == TAR_META;

    t->state = t->padding ? TAR_PADDING : TAR_HEADER;
    return meta ? tar_meta_end(t, err) : t->ops->on_entry_end(t->arg, err);
}

/* Consumes input for the current state. Returns the number of bytes, or -1. */
static ssize_t tar_parser_step(struct tar_parser *t, const uint8_t *data, size_t len, struct err *err)
{
    size_t n;

    switch (t->state) {
    case TAR_HEADER:
        n = min_size(len, TAR_BLOCK - t->block_len);
        memcpy(t->block + t->block_len, data, n);
        t->block_len += n;
        if (t->block_len < TAR_BLOCK)
            return (ssize_t)n;
        t->block_len = 0;
        return tar_read_header(t, err) < 0 ? -1 : (ssize_t)n;
    case TAR_CONTENT:
        n = (size_t)min_u64(len, t->content_left);
        t->content_left -= n;
        return t->ops->on_bytes(t->arg, data, n, err) < 0 ? -1 : (ssize_t)n;
    case TAR_META:
        n = (size_t)min_u64(len, t->content_left);
        t->content_left -= n;
        buf_add(&t->meta, data, n);
        return (ssize_t)n;
    case TAR_PADDING:
        n = min_size(len, t->padding);
        t->padding -= n;
        if (t->padding == 0)
            t->state = TAR_HEADER;
        return (ssize_t)n;
    case TAR_END:
        break;
    }
    return (ssize_t)len; /* bytes after the end are padding */
}

int tar_parser_feed(struct tar_parser *t, const void *data, size_t len, struct err *err)
{
    const uint8_t *p = data;

    while (len > 0) {
        ssize_t n = tar_parser_step(t, p, len, err);

        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
        if ((t->state == TAR_CONTENT || t->state == TAR_META) && t->content_left == 0 && tar_content_end(t, err) < 0)
            return -1;
    }
    return 0;
}

int tar_parser_finish(struct tar_parser *t, struct err *err)
{
    if (t->state != TAR_END && (t->state != TAR_HEADER || t->block_len > 0))
        return err_set(err, ERR_INVALID, "the archive ends in the middle of '%.120s'", t->entry.path);
    return 0;
}

/* --- writing --- */

static void tar_put_octal(uint8_t *field, size_t len, uint64_t v)
{
    for (size_t i = len - 1; i-- > 0; v >>= 3)
        field[i] = (uint8_t)('0' + (v & 7));
    field[len - 1] = '\0';
}

static void tar_put_block(uint8_t *b, const struct tar_entry *e, char type)
{
    static const uint64_t size_max = 077777777777u;
    size_t path = strlen(e->path), link = strlen(e->link);

    memset(b, 0, TAR_BLOCK);
    memcpy(b + NAME, e->path, min_size(path, NAME_LEN));
    memcpy(b + LINK, e->link, min_size(link, LINK_LEN));
    tar_put_octal(b + MODE, MODE_LEN, e->mode);
    tar_put_octal(b + UID, ID_FIELD_LEN, 1000);
    tar_put_octal(b + GID, ID_FIELD_LEN, 1000);
    tar_put_octal(b + SIZE, SIZE_LEN, min_u64(e->size, size_max));
    tar_put_octal(b + MTIME, MTIME_LEN, min_u64(e->mtime, size_max));
    b[TYPE] = (uint8_t)type;
    memcpy(b + MAGIC, "ustar", 6);
    b[MAGIC + 6] = b[MAGIC + 7] = '0';
    tar_put_octal(b + CHKSUM, CHKSUM_LEN - 1, tar_checksum(b));
    b[CHKSUM + CHKSUM_LEN - 1] = ' ';
}

static size_t tar_count_digits(size_t n)
{
    size_t d = 1;

    while (n >= 10)
        n /= 10, d++;
    return d;
}

/* The length counts its own digits, so it is found iteratively. */
static void tar_pax_add(struct buf *b, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3, len = rest + 1;

    while (rest + tar_count_digits(len) != len)
        len++;
    buf_addf(b, "%zu %s=", len, key);
    buf_adds(b, value);
    buf_adds(b, "\n");
}

static size_t tar_put_pax(uint8_t *out, const struct buf *pax)
{
    struct tar_entry e = { .mode = 0644, .size = pax->len, .path = "pax" };
    size_t padded = pax->len + tar_padding_of(pax->len);

    tar_put_block(out, &e, 'x');
    memcpy(out + TAR_BLOCK, pax->data, pax->len);
    memset(out + TAR_BLOCK + pax->len, 0, padded - pax->len);
    return TAR_BLOCK + padded;
}

size_t tar_write_headers(uint8_t out[TAR_HEADERS_MAX], const struct tar_entry *e)
{
    auto_buf pax = { 0 };
    char number_text[32];
    size_t n = 0;

    if (strlen(e->path) > NAME_LEN)
        tar_pax_add(&pax, "path", e->path);
    if (strlen(e->link) > LINK_LEN)
        tar_pax_add(&pax, "linkpath", e->link);
    if (e->size > 077777777777u) {
        snprintf(number_text, sizeof(number_text), "%" PRIu64, e->size);
        tar_pax_add(&pax, "size", number_text);
    }
    if (pax.len > 0)
        n = tar_put_pax(out, &pax);
    char type = e->kind == 'd' ? '5' : e->kind == 'l' ? '2' : e->kind == 'h' ? '1' : '0';
    tar_put_block(out + n, e, type);
    assert(n + TAR_BLOCK <= TAR_HEADERS_MAX);
    return n + TAR_BLOCK;
}
