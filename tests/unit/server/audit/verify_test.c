/* Modifications of a trail and the verifier's report: which record, and why. */
#include "tests/unit/test.h"

#include "server/audit/verify.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#define LINES 12 /* two files of six records; the last of each is a checkpoint */

static struct sign_key *key, *stranger;
static char *lines[LINES];
static struct chain_link head;

static void make_key(struct sign_key **ret)
{
    char dir[] = "/tmp/audit-verify-XXXXXX";
    struct err err = { 0 };
    bool fresh;

    assert_non_null(mkdtemp(dir));
    auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(sign_open(fd, ret, &fresh, &err), 0);
    assert_int_equal(unlinkat(fd, "key", 0) | unlinkat(fd, "key.pub", 0) | rmdir(dir), 0);
}

static void write_log(struct chain_link at, size_t from, const struct sign_key *by)
{
    for (size_t i = from; i < LINES; i++) {
        auto_buf out = { 0 };

        if (i % 6 == 5)
            chain_sign(&at, by, i == 5, 1700000000000 - i, &out); /* a clock that goes back is not a fault */
        else
            chain_append(&at, &(struct audit_record){ .tenant = "t", .action = "sandbox.create", .outcome = "success" },
                         1700000000000 - i, &out);
        free(lines[i]);
        lines[i] = str_dup(out.data);
    }
    head = at;
}

static int group_setup(void **state UNUSED)
{
    make_key(&key);
    make_key(&stranger);
    return 0;
}

static int group_teardown(void **state UNUSED)
{
    sign_free(key);
    sign_free(stranger);
    return 0;
}

static int setup(void **state UNUSED)
{
    write_log((struct chain_link){ 0 }, 0, key);
    return 0;
}

static int teardown(void **state UNUSED)
{
    for (size_t i = 0; i < LINES; i++)
        free(take_ptr(&lines[i]));
    return 0;
}

static void feed(struct verify *v, const char *name, size_t from, size_t to)
{
    auto_fd int fd = memfd_create("log", MFD_CLOEXEC);
    struct err err = { 0 };

    for (size_t i = from; i < to; i++)
        if (lines[i])
            assert_int_equal(fd_write_all(fd, lines[i], strlen(lines[i])), 0);
    lseek(fd, 0, SEEK_SET);
    assert_int_equal(verify_file(v, name, fd, &err), 0);
}

static struct verify_report run(const struct chain_link *expect)
{
    const struct sign_key *keys[] = { key };
    auto_(verify) v = verify_new(keys, 1, expect);

    feed(v, "one", 0, 6);
    feed(v, "two", 6, LINES);
    verify_finish(v);
    return *verify_report(v);
}

static void expect_fault(const struct verify_report *r, enum verify_fault fault, const char *file, uint64_t line,
                         uint64_t seq)
{
    if (r->fault != fault || !str_eq(r->file, file) || r->line != line || r->seq != seq)
        fail_msg("%s at %s:%" PRIu64 ", record %" PRIu64 ": %s", verify_fault_name(r->fault), r->file, r->line, r->seq,
                 r->why);
}

static void edit(size_t i, const char *from, const char *to)
{
    char *at = strstr(lines[i], from);

    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
}

/* Replaces a line by one with another tenant and a matching hash. */
static void forge(size_t i, const char *tenant)
{
    struct chain_line l;
    auto_buf out = { 0 };

    assert_int_equal(chain_parse_line(lines[i], strlen(lines[i]) - 1, &l, NULL), 0);
    struct chain_link at = { .seq = l.seq - 1 };
    memcpy(at.hash, l.prev, CHAIN_HASH);
    chain_append(&at, &(struct audit_record){ .tenant = tenant, .action = "sandbox.create", .outcome = "success" }, 1,
                 &out);
    free(lines[i]);
    lines[i] = str_dup(out.data);
}

TEST(AL10_an_unmodified_trail_is_fine_even_if_the_clock_went_back)
{
    struct verify_report r = run(&head);

    expect_fault(&r, VERIFY_FINE, "two", 0, 0);
    assert_int_equal(r.records, LINES);
    assert_int_equal(r.first, 1);
    assert_int_equal(r.last, LINES);
    assert_int_equal(r.signed_to, LINES);
    assert_int_equal(r.checkpoints, 2);
    assert_int_equal(r.files, 2);
}

TEST(a_trail_may_begin_anywhere_but_not_end_before_the_known_record)
{
    const struct sign_key *keys[] = { key };
    auto_(verify) v = verify_new(keys, 1, NULL);

    feed(v, "two", 6, LINES); /* the older file is in an archive */
    verify_finish(v);
    assert_int_equal(verify_report(v)->fault, VERIFY_FINE);
    assert_int_equal(verify_report(v)->first, 7);
    free(take_ptr(&lines[LINES - 1]));
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_FINE, "two", 0, 0);
    assert_int_equal(r.signed_to, 6); /* five records after it are not signed yet */
    r = run(&head);
    expect_fault(&r, VERIFY_TRUNCATED, "two", 5, 11);
}

TEST(AL06_an_edited_record_is_reported)
{
    edit(3, "sandbox.create", "sandbox.delete");
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_EDITED, "one", 4, 4);
}

TEST(AL06_an_edited_record_with_a_new_hash_is_detected_by_the_next)
{
    forge(3, "other");
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_EDITED, "one", 5, 5);
    assert_non_null(strstr(r.why, "record 4"));
}

TEST(AL06_a_rewritten_chain_fails_at_the_signature)
{
    forge(3, "other");
    struct chain_line l;
    assert_int_equal(chain_parse_line(lines[3], strlen(lines[3]) - 1, &l, NULL), 0);
    struct chain_link at = { .seq = l.seq };
    memcpy(at.hash, l.hash, CHAIN_HASH);
    write_log(at, 4, stranger);
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_SIGNATURE, "one", 6, 6);
    assert_non_null(strstr(r.why, "unknown key"));
}

TEST(an_invalid_signature_is_refused)
{
    char *hex = strstr(lines[5], "signature\":\"") + strlen("signature\":\"");
    struct chain_line l;
    auto_buf text = { 0 };
    uint8_t hash[CHAIN_HASH];
    char digits[2 * CHAIN_HASH + 1];

    *hex = *hex == '0' ? '1' : '0';
    /* The hash of the line is recomputed, so that only the signature is wrong. */
    char *tail = strstr(lines[5], ",\"hash\":\"");
    assert_int_equal(chain_parse_line(lines[5], strlen(lines[5]) - 1, &l, NULL), 0);
    buf_add(&text, l.prev, CHAIN_HASH);
    buf_add(&text, lines[5], (size_t)(tail - lines[5]));
    buf_adds(&text, "}");
    chain_sha256(text.data, text.len, hash);
    chain_hex(hash, CHAIN_HASH, digits);
    memcpy(tail + strlen(",\"hash\":\""), digits, strlen(digits));
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_SIGNATURE, "one", 6, 6);
}

TEST(AL06_a_missing_record_is_reported_at_the_record_after_the_gap)
{
    free(take_ptr(&lines[3]));
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_MISSING, "one", 4, 5);
    assert_non_null(strstr(r.why, "4 to 4"));
}

TEST(AL06_reordered_records_are_reported)
{
    char *swap = lines[7];

    lines[7] = lines[8];
    lines[8] = swap;
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_MISSING, "two", 2, 9);
    free(lines[8]);
    lines[8] = str_dup(lines[6]); /* a duplicate */
    swap = lines[7];
    lines[7] = str_dup(lines[6]);
    free(swap);
    r = run(NULL);
    expect_fault(&r, VERIFY_REORDERED, "two", 2, 7);
}

TEST(a_truncated_file_is_reported_if_another_follows)
{
    free(take_ptr(&lines[5]));
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_TRUNCATED, "one", 5, 5);
}

TEST(a_file_that_ends_inside_a_line_is_reported)
{
    lines[11][40] = '\0';
    struct verify_report r = run(NULL);
    expect_fault(&r, VERIFY_TRUNCATED, "two", 6, 12);
}

TEST(a_missing_file_is_reported_as_a_gap)
{
    const struct sign_key *keys[] = { key };
    auto_(verify) v = verify_new(keys, 1, NULL);

    feed(v, "one", 0, 6);
    feed(v, "three", 8, LINES);
    verify_finish(v);
    expect_fault(verify_report(v), VERIFY_MISSING, "three", 1, 9);
}

TEST(concatenated_files_are_one_trail)
{
    const struct sign_key *keys[] = { key };
    auto_(verify) v = verify_new(keys, 1, &head);

    feed(v, "both", 0, LINES);
    verify_finish(v);
    assert_int_equal(verify_report(v)->fault, VERIFY_FINE);
    assert_int_equal(verify_report(v)->records, LINES);
}

TEST(without_a_key_the_chain_is_checked_but_signed_to_stays_0)
{
    auto_(verify) v = verify_new(NULL, 0, NULL);

    feed(v, "one", 0, 6);
    assert_int_equal(verify_report(v)->fault, VERIFY_FINE);
    assert_int_equal(verify_report(v)->checkpoints, 1);
    assert_int_equal(verify_report(v)->signed_to, 0);
    edit(7, "sandbox.create", "sandbox.delete");
    feed(v, "two", 6, LINES);
    expect_fault(verify_report(v), VERIFY_EDITED, "two", 2, 8);
}

TEST(input_without_lines_is_unreadable)
{
    auto_fd int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    auto_(verify) v = verify_new(NULL, 0, NULL);
    struct err err = { 0 };

    assert_int_equal(verify_file(v, "zero", zero, &err), 0); /* endless, without a newline */
    expect_fault(verify_report(v), VERIFY_UNREADABLE, "zero", 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        EACH(AL10_an_unmodified_trail_is_fine_even_if_the_clock_went_back),
        EACH(a_trail_may_begin_anywhere_but_not_end_before_the_known_record),
        EACH(AL06_an_edited_record_is_reported),
        EACH(AL06_an_edited_record_with_a_new_hash_is_detected_by_the_next),
        EACH(AL06_a_rewritten_chain_fails_at_the_signature),
        EACH(an_invalid_signature_is_refused),
        EACH(AL06_a_missing_record_is_reported_at_the_record_after_the_gap),
        EACH(AL06_reordered_records_are_reported),
        EACH(a_truncated_file_is_reported_if_another_follows),
        EACH(a_file_that_ends_inside_a_line_is_reported),
        EACH(a_missing_file_is_reported_as_a_gap),
        EACH(concatenated_files_are_one_trail),
        EACH(without_a_key_the_chain_is_checked_but_signed_to_stays_0),
        EACH(input_without_lines_is_unreadable),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
