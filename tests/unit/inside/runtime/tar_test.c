#include "tests/unit/test.h"

#include "core/base/mem.h"
#include "inside/runtime/tar.h"

#include <stdio.h>

/* Records the callbacks as "kind mode size mtime path->link{content}" lines. */
struct heard {
    struct buf text;
    bool refuse;
};

static int on_entry(void *arg, const struct tar_entry *e, struct err *err)
{
    struct heard *h = arg;

    if (h->refuse)
        return err_set(err, ERR_DENIED, "no");
    buf_addf(&h->text, "%c %o %d %d %s", e->kind, e->mode, (int)e->size, (int)e->mtime, e->path);
    if (e->link[0])
        buf_addf(&h->text, "->%s", e->link);
    buf_adds(&h->text, e->kind == 'f' ? "{" : "\n");
    return 0;
}

static int on_bytes(void *arg, const void *data, size_t len, struct err *err UNUSED)
{
    struct heard *h = arg;

    buf_add(&h->text, data, len);
    return 0;
}

static int on_entry_end(void *arg, struct err *err UNUSED)
{
    struct heard *h = arg;

    buf_adds(&h->text, "}\n");
    return 0;
}

static const struct tar_ops ops = { on_entry, on_bytes, on_entry_end };

/* Parses in pieces of `piece` bytes. */
static int parse(const struct buf *b, size_t piece, uint64_t max, struct heard *h, struct err *err)
{
    struct tar_parser *t = mem_new(struct tar_parser);
    int r = 0;

    buf_clear(&h->text);
    tar_parser_init(t, max, &ops, h);
    for (size_t at = 0; r == 0 && at < b->len; at += piece)
        r = tar_parser_feed(t, b->data + at, min_size(piece, b->len - at), err);
    if (r == 0)
        r = tar_parser_finish(t, err);
    tar_parser_done(t);
    free(t);
    return r;
}

static void fix_checksum(uint8_t *b)
{
    unsigned sum = 0;

    memset(b + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += b[i];
    snprintf((char *)b + 148, 8, "%06o", sum);
}

/* A header written by hand, with content that tar_write_headers never writes. */
static uint8_t *raw(struct buf *b, char type, const char *name, const char *size, const char *magic)
{
    uint8_t block[512] = { 0 };

    snprintf((char *)block, 100, "%s", name);
    memcpy(block + 100, "0000644", 7);
    memcpy(block + 124, size, strlen(size));
    memcpy(block + 136, "00000000001", 11);
    block[156] = (uint8_t)type;
    memcpy(block + 257, magic, 6);
    fix_checksum(block);
    buf_add(b, block, sizeof(block));
    return (uint8_t *)b->data + b->len - 512;
}

static void content(struct buf *b, const char *text, size_t len)
{
    static const uint8_t zero[512];

    buf_add(b, text, len);
    buf_add(b, zero, (512 - len % 512) % 512);
}

static void add(struct buf *b, const struct tar_entry *e, const char *text)
{
    auto_free uint8_t *out = mem_alloc(TAR_HEADERS_MAX);

    buf_add(b, out, tar_write_headers(out, e));
    if (text)
        content(b, text, strlen(text));
}

static void pax(struct buf *b, const char *records)
{
    char size[12];

    snprintf(size, sizeof(size), "%011o", (unsigned)strlen(records));
    raw(b, 'x', "pax", size, "ustar");
    content(b, records, strlen(records));
}

TEST(the_parser_reads_the_writers_output_in_pieces_of_any_size)
{
    auto_buf b = { 0 };
    auto_free struct tar_entry *e = mem_new(struct tar_entry);
    struct heard h = { 0 };
    struct err err = { 0 };
    auto_buf want = { 0 };

    *e = (struct tar_entry){ .kind = 'd', .mode = 0755, .mtime = 5, .path = "dir" };
    add(&b, e, NULL);
    *e = (struct tar_entry){ .kind = 'f', .mode = 0600, .mtime = 6, .size = 5, .path = "dir/f" };
    add(&b, e, "hello");
    *e = (struct tar_entry){ .kind = 'f', .mode = 0600, .path = "empty" };
    add(&b, e, NULL);
    *e = (struct tar_entry){ .kind = 'l', .mode = 0777, .path = "l", .link = "../any/where" };
    add(&b, e, NULL);
    *e = (struct tar_entry){ .kind = 'h', .mode = 0600, .path = "h", .link = "dir/f" };
    add(&b, e, NULL);
    *e = (struct tar_entry){ .kind = 'l', .mode = 0777 };
    for (int i = 0; i < 30; i++) {
        strcat(e->path, i ? "/long-directory-name" : "long-directory-name");
        strcat(e->link, "/some-long-target");
    }
    add(&b, e, NULL);
    buf_addf(&want,
             "d 755 0 5 dir\nf 600 5 6 dir/f{hello}\nf 600 0 0 empty{}\nl 777 0 0 l->../any/where\n"
             "h 600 0 0 h->dir/f\nl 777 0 0 %s->%s\n",
             e->path, e->link);
    buf_add(&b, (uint8_t[1024]){ 0 }, 1024);
    static const size_t pieces[] = { 1, 7, 511, 512, 513, 100000 };
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        if (parse(&b, pieces[i], 1000, &h, &err) < 0)
            fail_msg("pieces of %zu: %s", pieces[i], err.msg);
        assert_string_equal(h.text.data, want.data);
    }
    buf_done(&h.text);
}

TEST(sizes_of_8_gib_and_more_use_a_pax_header)
{
    auto_free struct tar_entry *e = mem_new(struct tar_entry);
    auto_free uint8_t *out = mem_alloc(TAR_HEADERS_MAX);
    auto_buf b = { 0 };
    struct heard h = { 0 };
    struct err err = { 0 };

    *e = (struct tar_entry){ .kind = 'f', .path = "big", .size = 1ull << 40 };
    buf_add(&b, out, tar_write_headers(out, e));
    assert_non_null(memmem(b.data, b.len, "22 size=1099511627776\n", 22));
    assert_int_equal(parse(&b, 512, (1ull << 40) - 1, &h, &err), -1); /* the size is accepted, and exceeds the limit */
    assert_int_equal(err.id, ERR_LIMIT);
    buf_done(&h.text);
}

TEST(paths_are_cleaned_or_refused)
{
    static const struct {
        const char *in, *out; /* NULL: refused */
    } cases[] = {
        { "a/b", "a/b" },   { "./a", "a" },       { "a//b/./c/", "a/b/c" }, { ".", "" },    { "", "" },
        { "...", "..." },   { "a/..b", "a/..b" }, { "/a", NULL },           { "..", NULL }, { "a/..", NULL },
        { "a/../b", NULL }, { "../a", NULL },     { "./..", NULL },
    };
    struct err err = { 0 };
    char path[2048];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(path, sizeof(path), "%s", cases[i].in);
        int r = tar_clean_path(path, &err);
        if ((r == 0) != (cases[i].out != NULL) || (r == 0 && strcmp(path, cases[i].out) != 0))
            fail_msg("'%s' became '%s'", cases[i].in, path);
    }
    path[0] = '\0';
    for (unsigned i = 0; i < TAR_DEPTH_MAX + 1; i++)
        strcat(path, "d/");
    assert_int_equal(tar_clean_path(path, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
    memset(path, 'n', 256);
    path[256] = '\0';
    assert_int_equal(tar_clean_path(path, &err), -1);
}

TEST(a_forbidden_entry_is_refused_with_its_reason)
{
    static const struct {
        char type;
        const char *name, *size;
        const char *says;
    } cases[] = {
        { '3', "dev", "0", "device" },
        { '4', "dev", "0", "device" },
        { '6', "pipe", "0", "device or pipe" },
        { 'S', "s", "0", "sparse" },
        { 'D', "d", "0", "unknown type" },
        { '0', "/abs", "0", "absolute" },
        { '0', "../up", "0", "'..'" },
        { '0', "", "0", "without a name" },
        { '0', "./", "0", NULL }, /* a directory because of its slash: the top itself */
        { '0', ".", "0", "without a name" },
        { '2', "l", "0", "link without a target" },
        { '0', "f", "9x", "invalid size" },
        { '0', "f", "\xff", "invalid size" },
        { 'x', "p", "00000777777", "header of" },
        { 'L', "p", "00000777777", "header of" },
        { 'L', "p", "0", "a name of 0 bytes" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf b = { 0 };
        struct heard h = { 0 };
        struct err err = { 0 };

        raw(&b, cases[i].type, cases[i].name, cases[i].size, "ustar");
        raw(&b, '0', "next", "0", "ustar");
        int r = parse(&b, 512, 1000, &h, &err);
        if (cases[i].says ? r == 0 || !strstr(err.msg, cases[i].says) : r < 0)
            fail_msg("case %zu: %s", i, err.msg);
        buf_done(&h.text);
    }
}

TEST(set_id_bits_are_dropped)
{
    auto_buf b = { 0 };
    struct heard h = { 0 };
    struct err err = { 0 };
    uint8_t *block = raw(&b, '0', "f", "0", "ustar");

    memcpy(block + 100, "0006755", 7);
    fix_checksum(block);
    assert_int_equal(parse(&b, 512, 0, &h, &err), 0);
    assert_string_equal(h.text.data, "f 755 0 1 f{}\n");
    buf_done(&h.text);
}

TEST(v7_ustar_gnu_and_pax_names_are_supported)
{
    auto_buf b = { 0 };
    struct heard h = { 0 };
    struct err err = { 0 };
    uint8_t *block;

    block = raw(&b, '0', "leaf", "0", "ustar");
    memcpy(block + 345, "pre/fix", 7);
    fix_checksum(block);
    block = raw(&b, '0', "gnu", "0", "ustar ");
    memcpy(block + 345, "12345670", 8); /* a time, in GNU's own layout */
    fix_checksum(block);
    raw(&b, '\0', "v7dir/", "0", "\0\0\0\0\0");
    raw(&b, 'L', "././@LongLink", "00000000012", "ustar ");
    content(&b, "long/name\0", 10);
    raw(&b, '0', "short", "0", "ustar ");
    raw(&b, 'g', "global", "00000000015", "ustar");
    content(&b, "13 comment=x\n", 13);
    pax(&b, "14 path=p/q/r\n17 mtime=77.1234\n9 size=3\n14 ctime=1e99\n");
    raw(&b, '0', "ignored", "0", "ustar");
    content(&b, "abc", 3);
    raw(&b, '0', "after", "0", "ustar"); /* the records applied to one entry only */
    assert_int_equal(parse(&b, 512, 10, &h, &err), 0);
    assert_string_equal(h.text.data,
                        "f 644 0 1 pre/fix/leaf{}\nf 644 0 1 gnu{}\nd 644 0 1 v7dir\nf 644 0 1 long/name{}\n"
                        "f 644 3 77 p/q/r{abc}\nf 644 0 1 after{}\n");
    buf_done(&h.text);
}

TEST(broken_pax_records_are_refused)
{
    static const char *const bad[] = {
        "x path=a\n",
        "9 path=a",
        "99 path=a\n",
        "5 a=b\nz",
        "4 =b\n",
        "7 abcd\n",
        "0 path=a\n",
        "10 size=-1\n",
        "10 size=xx\n",
        "27 size=99999999999999999999\n",
        "23 GNU.sparse.major=1\n",
        "2\n",
        " 9 path=a\n",
        "8 path=\n",
        "13 path=../a\n",
        "99999999999999999999 path=a\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_buf b = { 0 };
        struct heard h = { 0 };
        struct err err = { 0 };

        pax(&b, bad[i]);
        raw(&b, '0', "f", "0", "ustar");
        if (parse(&b, 512, 1000, &h, &err) == 0)
            fail_msg("case %zu is accepted: %s", i, h.text.data);
        buf_done(&h.text);
    }
}

TEST(a_name_with_a_nul_inside_is_refused)
{
    auto_buf b = { 0 };
    struct heard h = { 0 };
    struct err err = { 0 };

    raw(&b, 'x', "pax", "00000000013", "ustar");
    content(&b, "11 path=a\0\n", 11);
    raw(&b, '0', "f", "0", "ustar");
    assert_int_equal(parse(&b, 512, 0, &h, &err), -1);
    buf_done(&h.text);
}

TEST(damaged_and_truncated_archives_are_refused)
{
    auto_free struct tar_entry *e = mem_new(struct tar_entry);
    auto_buf b = { 0 };
    struct heard h = { 0 };
    struct err err = { 0 };

    *e = (struct tar_entry){ .kind = 'f', .size = 700, .path = "f" };
    char text[701];
    memset(text, 'x', 700);
    text[700] = '\0';
    add(&b, e, text);
    for (size_t cut = 1; cut < b.len; cut += 97) {
        struct buf part = { b.data, cut, cut };

        if (parse(&part, 512, 1000, &h, &err) == 0)
            fail_msg("cut at %zu", cut);
    }
    assert_int_equal(parse(&b, 512, 1000, &h, &err), 0); /* complete, but without an end marker */
    b.data[3] ^= 1;
    assert_int_equal(parse(&b, 512, 1000, &h, &err), -1);
    assert_non_null(strstr(err.msg, "not a tar archive"));
    buf_done(&h.text);
}

TEST(the_size_limit_is_checked_before_an_entry_is_reported)
{
    auto_buf b = { 0 };
    struct heard h = { 0 };
    struct err err = { 0 };

    raw(&b, '0', "a", "00000000005", "ustar");
    content(&b, "12345", 5);
    raw(&b, '0', "b", "00000000005", "ustar");
    content(&b, "12345", 5);
    assert_int_equal(parse(&b, 512, 10, &h, &err), 0);
    assert_int_equal(parse(&b, 512, 9, &h, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
    assert_string_equal(h.text.data, "f 644 5 1 a{12345}\n");
    buf_done(&h.text);
}

TEST(an_error_of_a_callback_ends_the_parsing)
{
    auto_buf b = { 0 };
    struct heard h = { .refuse = true };
    struct err err = { 0 };

    raw(&b, '0', "a", "0", "ustar");
    assert_int_equal(parse(&b, 512, 0, &h, &err), -1);
    assert_int_equal(err.id, ERR_DENIED);
    buf_done(&h.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_parser_reads_the_writers_output_in_pieces_of_any_size),
        RUN(sizes_of_8_gib_and_more_use_a_pax_header),
        RUN(paths_are_cleaned_or_refused),
        RUN(a_forbidden_entry_is_refused_with_its_reason),
        RUN(set_id_bits_are_dropped),
        RUN(v7_ustar_gnu_and_pax_names_are_supported),
        RUN(broken_pax_records_are_refused),
        RUN(a_name_with_a_nul_inside_is_refused),
        RUN(damaged_and_truncated_archives_are_refused),
        RUN(the_size_limit_is_checked_before_an_entry_is_reported),
        RUN(an_error_of_a_callback_ends_the_parsing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
