#include "tests/unit/test.h"

#include "server/audit/chain.h"
#include "server/audit/sign.h"
#include "core/base/fd.h"
#include "core/base/jsonr.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static struct chain_link at;
static struct buf out;

static int setup(void **state UNUSED)
{
    at = (struct chain_link){ 0 };
    return 0;
}

static int teardown(void **state UNUSED)
{
    buf_done(&out);
    return 0;
}

static const char *add(const struct audit_record *r)
{
    buf_clear(&out);
    chain_append(&at, r, 1700000000123, &out);
    assert_int_equal(out.data[out.len - 1], '\n');
    return out.data;
}

TEST(a_record_is_one_parsable_line_with_the_hash_of_the_previous)
{
    struct audit_pair target[] = { { "sandbox", "sbaaaa" }, { "path", "/workspace/a b" } };
    struct audit_record r = { .tenant = "acme",
                              .action = "file.put",
                              .outcome = "success",
                              .status = 200,
                              .kind = "key",
                              .key = "kyaaaa",
                              .address = "192.0.2.1",
                              .target = target,
                              .ntarget = 2,
                              .request = "rq1",
                              .details = "{\"bytes\":7}" };
    struct chain_line first, second;
    char zeros[2 * CHAIN_HASH + 1] = { 0 };

    memset(zeros, '0', sizeof(zeros) - 1);
    const char *text = add(&r);
    assert_non_null(strstr(text,
                           "{\"seq\":1,\"at\":\"2023-11-14T22:13:20.123Z\",\"tenant\":\"acme\",\"action\":\"file.put\","
                           "\"outcome\":\"success\",\"status\":200,\"actor\":{\"kind\":\"key\",\"key\":\"kyaaaa\","
                           "\"address\":\"192.0.2.1\"},\"target\":{\"sandbox\":\"sbaaaa\",\"path\":\"/workspace/a b\"},"
                           "\"requestId\":\"rq1\",\"details\":{\"bytes\":7},\"prev\":\""));
    assert_non_null(strstr(text, zeros));
    assert_int_equal(chain_parse_line(out.data, out.len - 1, &first, NULL), 0);
    assert_int_equal(first.seq, 1);
    assert_int_equal(first.at_ms, 1700000000123);
    assert_true(chain_hash_matches(out.data, out.len - 1, &first));
    assert_memory_equal(first.hash, at.hash, CHAIN_HASH);
    add(&r);
    assert_int_equal(chain_parse_line(out.data, out.len - 1, &second, NULL), 0);
    assert_int_equal(second.seq, 2);
    assert_memory_equal(second.prev, first.hash, CHAIN_HASH);
    assert_false(second.checkpoint);
}

/* Follows the rule in docs/audit.md, for readers with their own tools. */
TEST(the_hash_covers_prev_and_the_line_without_its_hash)
{
    struct chain_line l;
    uint8_t hash[CHAIN_HASH];
    auto_buf text = { 0 };

    add(&(struct audit_record){ .action = "server.start", .outcome = "success" });
    add(&(struct audit_record){ .action = "server.stop", .outcome = "success" });
    assert_int_equal(chain_parse_line(out.data, out.len - 1, &l, NULL), 0);
    buf_add(&text, l.prev, CHAIN_HASH);
    buf_add(&text, out.data, (size_t)(strstr(out.data, ",\"hash\":") - out.data));
    buf_adds(&text, "}");
    chain_sha256(text.data, text.len, hash);
    assert_memory_equal(hash, l.hash, CHAIN_HASH);
}

TEST(AL03_names_cannot_break_a_line_or_forge_a_member)
{
    static const char *const hostile[] = {
        "a\nb",
        "\r\n{\"seq\":9}",
        "\",\"outcome\":\"success\",\"x\":\"",
        "\x1b[2J\x1b]0;x\x07",
        "\xe2\x80\xa8next",
        "\xff\xfe",
        "back\\slash\\",
        "\x01\x02\x7f",
    };

    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        struct audit_pair target = { "path", hostile[i] };
        struct json_doc doc;
        struct chain_line l;

        at = (struct chain_link){ 0 };
        add(&(struct audit_record){ .tenant = "t",
                                    .action = "file.put",
                                    .outcome = "refused",
                                    .target = &target,
                                    .ntarget = 1,
                                    .client_request = hostile[i] });
        assert_int_equal(chain_parse_line(out.data, out.len - 1, &l, NULL), 0);
        assert_ptr_equal(memchr(out.data, '\n', out.len), out.data + out.len - 1);
        for (size_t k = 0; k < out.len - 1; k++)
            assert_true((unsigned char)out.data[k] >= 0x20 && out.data[k] != 0x7f);
        assert_null(strstr(out.data, "\xe2\x80\xa8"));
        assert_int_equal(json_read(out.data, out.len, &doc, NULL), 0);
        assert_string_equal(json_text(json_get(doc.root, "outcome")), "refused");
        json_doc_done(&doc);
    }
}

TEST(a_line_with_any_changed_byte_is_invalid_or_fails_its_hash)
{
    struct audit_pair target = { "sandbox", "sbaaaa" };
    struct chain_line l;

    add(&(struct audit_record){
        .tenant = "t", .action = "sandbox.delete", .outcome = "success", .target = &target, .ntarget = 1 });
    for (size_t i = 0; i + 1 < out.len; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            out.data[i] ^= (char)(1u << bit);
            if (chain_parse_line(out.data, out.len - 1, &l, NULL) == 0 && chain_hash_matches(out.data, out.len - 1, &l))
                fail_msg("bit %u of byte %zu", bit, i);
            out.data[i] ^= (char)(1u << bit);
        }
}

TEST(text_that_is_not_a_record_is_refused)
{
    static const char *const bad[] = { "",
                                       "{}",
                                       "{\"seq\":1}",
                                       "{\"seq\":01,\"at\":\"2023-11-14T22:13:20.123Z\"",
                                       "{\"seq\":-1",
                                       "null",
                                       "{\"seq\":99999999999999999999" };
    struct chain_line l;
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        err = (struct err){ 0 };
        assert_int_equal(chain_parse_line(bad[i], strlen(bad[i]), &l, &err), -1);
        assert_int_equal(err.id, ERR_INVALID);
    }
    add(&(struct audit_record){ .action = "a.b", .outcome = "success" });
    for (size_t n = 0; n + 1 < out.len; n++)
        assert_int_equal(chain_parse_line(out.data, n, &l, NULL), -1);
}

TEST(only_the_signing_key_verifies_a_checkpoint)
{
    char dir[] = "/tmp/audit-chain-XXXXXX";
    auto_(sign_key) key = NULL;
    auto_(sign_key) again = NULL;
    auto_(sign_key) public = NULL;
    auto_(sign_key) other = NULL;
    struct chain_line l;
    struct err err = { 0 };
    struct stat st;
    bool fresh;

    assert_non_null(mkdtemp(dir));
    auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(sign_open(fd, &key, &fresh, &err), 0);
    assert_true(fresh);
    assert_int_equal(sign_open(fd, &again, &fresh, &err), 0);
    assert_false(fresh);
    assert_string_equal(sign_id(key), sign_id(again));
    assert_int_equal(sign_read(sign_pem(key), strlen(sign_pem(key)), &public, &err), 0);
    assert_int_equal(fstatat(fd, "key", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_null(strstr(sign_pem(key), "PRIVATE"));

    add(&(struct audit_record){ .action = "a.b", .outcome = "success" });
    buf_clear(&out);
    chain_sign(&at, key, true, 1700000000000, &out);
    assert_int_equal(chain_parse_line(out.data, out.len - 1, &l, NULL), 0);
    assert_true(l.checkpoint && l.last && chain_hash_matches(out.data, out.len - 1, &l));
    assert_string_equal(l.key, sign_id(key));
    assert_true(sign_check(public, l.seq, l.prev, l.signature));
    assert_false(sign_check(public, l.seq + 1, l.prev, l.signature));
    l.prev[0] ^= 1;
    assert_false(sign_check(public, l.seq, l.prev, l.signature));
    l.prev[0] ^= 1;

    assert_int_equal(unlinkat(fd, "key", 0), 0);
    assert_int_equal(sign_open(fd, &other, &fresh, &err), 0);
    assert_false(sign_check(other, l.seq, l.prev, l.signature));
    assert_int_equal(fchmodat(fd, "key", 0644, 0), 0);
    auto_(sign_key) shown = NULL;
    assert_int_equal(sign_open(fd, &shown, &fresh, &err), -1); /* a key that other users can read is refused */
    assert_int_equal(err.id, ERR_STATE_DIR);
    assert_int_equal(unlinkat(fd, "key", 0) | unlinkat(fd, "key.pub", 0) | rmdir(dir), 0);
    assert_int_equal(sign_read("nonsense", 8, &shown, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        EACH(a_record_is_one_parsable_line_with_the_hash_of_the_previous),
        EACH(the_hash_covers_prev_and_the_line_without_its_hash),
        EACH(AL03_names_cannot_break_a_line_or_forge_a_member),
        EACH(a_line_with_any_changed_byte_is_invalid_or_fails_its_hash),
        EACH(text_that_is_not_a_record_is_refused),
        EACH(only_the_signing_key_verifies_a_checkpoint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
