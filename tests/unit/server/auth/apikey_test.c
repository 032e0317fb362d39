#include "tests/unit/test.h"

#include "server/auth/apikey.h"
#include "server/auth/keycache.h"
#include "core/base/clock.h"
#include "core/base/str.h"

#define K1 "0123456789abcdef0123456789abcdef01234567"
#define K2 "0123456789abcdef0123456789abcdef01234568"

TEST(AU01_a_credential_that_is_not_exactly_one_key_is_refused)
{
    static const struct {
        const char *authorization, *x_api_key;
        enum apikey_header_result expected;
    } rows[] = {
        { NULL, NULL, APIKEY_NONE },
        { "Bearer cove_" K1, NULL, APIKEY_OK },
        { "bearer cove_" K1, NULL, APIKEY_OK },
        { "BEARER   cove_" K1, NULL, APIKEY_OK },
        { "Bearer e2b_" K1, NULL, APIKEY_OK },
        { NULL, "cove_" K1, APIKEY_OK },
        { NULL, "e2b_" K1, APIKEY_OK },
        { "Bearer cove_" K1, "cove_" K1, APIKEY_OK },
        { "Bearer cove_" K1, "e2b_" K1, APIKEY_OK }, /* the same key with its other prefix */
        { "Bearer cove_" K1, "cove_" K2, APIKEY_BAD },
        { "Bearer cove_" K1, "", APIKEY_BAD },
        { "", NULL, APIKEY_BAD },
        { "", "cove_" K1, APIKEY_BAD },
        { NULL, "", APIKEY_BAD },
        { " ", NULL, APIKEY_BAD },
        { "Bearer", NULL, APIKEY_BAD },
        { "Bearer ", NULL, APIKEY_BAD },
        { "Bearercove_" K1, NULL, APIKEY_BAD },
        { "Bearer\tcove_" K1, NULL, APIKEY_BAD },
        { " Bearer cove_" K1, NULL, APIKEY_BAD },
        { "Basic cove_" K1, NULL, APIKEY_BAD },
        { "Basic Y292ZTpjb3Zl", NULL, APIKEY_BAD },
        { "Digest username=\"x\"", NULL, APIKEY_BAD },
        { "Token cove_" K1, NULL, APIKEY_BAD },
        { "cove_" K1, NULL, APIKEY_BAD },
        { "Bearer Bearer cove_" K1, NULL, APIKEY_BAD },
        { "Bearer cove_", NULL, APIKEY_BAD },
        { "Bearer cove_0123456789abcdef", NULL, APIKEY_BAD },
        { "Bearer cove_" K1 "0", NULL, APIKEY_BAD },
        { "Bearer cove_" K1 " ", NULL, APIKEY_BAD },
        { "Bearer cove_" K1 ",cove_" K2, NULL, APIKEY_BAD },
        { "Bearer COVE_" K1, NULL, APIKEY_BAD },
        { "Bearer cove_0123456789ABCDEF0123456789ABCDEF01234567", NULL, APIKEY_BAD },
        { "Bearer cove_0123456789abcdef0123456789abcdef0123456g", NULL, APIKEY_BAD },
        { "Bearer cove-" K1, NULL, APIKEY_BAD },
        { "Bearer " K1, NULL, APIKEY_BAD },
        { "Bearer null", NULL, APIKEY_BAD },
        { "Bearer eyJhbGciOiJub25lIn0.e30.", NULL, APIKEY_BAD },
        { NULL, "Bearer cove_" K1, APIKEY_BAD },
        { NULL, "cove_" K1 "\r\nX-Admin: 1", APIKEY_BAD },
        { NULL, " cove_" K1, APIKEY_BAD },
    };
    uint8_t expected[STORE_HASH_LEN], hash[STORE_HASH_LEN];

    assert_true(apikey_hash("cove_" K1, expected));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        memset(hash, 0, sizeof(hash));
        if (apikey_from_headers(rows[i].authorization, rows[i].x_api_key, hash) != rows[i].expected)
            fail_msg("row %zu: '%s' '%s'", i, rows[i].authorization ? rows[i].authorization : "-",
                     rows[i].x_api_key ? rows[i].x_api_key : "-");
        if (rows[i].expected == APIKEY_OK)
            assert_memory_equal(hash, expected, sizeof(hash));
    }
}

TEST(a_header_of_a_megabyte_is_refused)
{
    auto_free char *large = str_printf("Bearer cove_%01000000d", 0);
    uint8_t hash[STORE_HASH_LEN];

    assert_int_equal(apikey_from_headers(large, NULL, hash), APIKEY_BAD);
    assert_int_equal(apikey_from_headers(NULL, large + 7, hash), APIKEY_BAD);
}

TEST(new_keys_are_well_formed_and_unique_and_show_only_a_prefix)
{
    struct apikey a, b;
    uint8_t hash[STORE_HASH_LEN];

    apikey_new(&a);
    apikey_new(&b);
    assert_int_equal(strlen(a.text), 45);
    assert_int_equal(strspn(a.text + 5, "0123456789abcdef"), 40);
    assert_string_not_equal(a.text, b.text);
    assert_true(apikey_hash(a.text, hash));
    assert_memory_equal(hash, a.hash, sizeof(hash));
    assert_int_equal(strlen(a.prefix), 13); /* leaves 128 bits that are never shown */
    assert_true(str_starts(a.text, a.prefix));
    apikey_wipe(&a);
    for (size_t i = 0; i < sizeof(a); i++)
        assert_int_equal(((const char *)&a)[i], 0);
}

TEST(the_stored_hash_is_the_sha256_of_the_digits)
{
    /* printf 0123456789abcdef0123456789abcdef01234567 | sha256sum */
    static const uint8_t expected[] = { 0xde, 0xb8, 0x7f, 0xab, 0xd1, 0x77, 0x15, 0xbb, 0x31, 0xad, 0x4c,
                                        0xf4, 0xff, 0xb9, 0x49, 0x4e, 0xeb, 0x15, 0xf8, 0xd3, 0x3d, 0x85,
                                        0xb0, 0x31, 0xa3, 0x01, 0xc6, 0x4a, 0xb3, 0x41, 0x7e, 0xaa };
    uint8_t hash[STORE_HASH_LEN];

    assert_true(apikey_hash("cove_" K1, hash));
    assert_memory_equal(hash, expected, sizeof(expected));
}

/* Nanoseconds that the fastest quarter of the tries took: the rest contains delays by other
 * processes. */
static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

#define TRIES 20000

TEST(AU09_the_comparison_time_does_not_reveal_correct_digits)
{
    static uint64_t times[3][TRIES];
    static const size_t right[3] = { 0, 20, 39 };
    struct keycache *cache = keycache_new();
    struct apikey key;
    struct store_login row = { .key = { .id = "kyaaaaaaaaaaaaaaaaaaaa", .owner = "anna" }, .member = true };
    struct store_key_use lost;
    char tries[3][APIKEY_SIZE];

    apikey_new(&key);
    memcpy(row.key.hash, key.hash, sizeof(row.key.hash));
    keycache_put(cache, &row, 1, &lost);
    for (size_t g = 0; g < 3; g++) {
        strcpy(tries[g], key.text);
        for (size_t i = 5 + right[g]; i < 45; i++)
            tries[g][i] = key.text[i] == '0' ? '1' : '0';
    }
    for (size_t i = 0; i < TRIES; i++)
        for (size_t g = 0; g < 3; g++) { /* alternating, so that all three see the same load of the machine */
            uint8_t hash[STORE_HASH_LEN];
            uint64_t began = clock_mono_ns();

            assert_true(apikey_hash(tries[g], hash));
            assert_null(keycache_find(cache, hash));
            times[g][i] = clock_mono_ns() - began;
        }
    for (size_t g = 0; g < 3; g++)
        qsort(times[g], TRIES, sizeof(uint64_t), by_value);
    for (size_t g = 1; g < 3; g++) {
        uint64_t a = times[0][TRIES / 4], b = times[g][TRIES / 4], apart = a > b ? a - b : b - a;

        /* A comparison that stops early would differ by everything that it saves, not by a
         * quarter. */
        if (apart * 4 > a)
            fail_msg("%zu digits right: %" PRIu64 " ns, none: %" PRIu64 " ns", right[g], b, a);
    }
    keycache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(AU01_a_credential_that_is_not_exactly_one_key_is_refused),
        RUN(a_header_of_a_megabyte_is_refused),
        RUN(new_keys_are_well_formed_and_unique_and_show_only_a_prefix),
        RUN(the_stored_hash_is_the_sha256_of_the_digits),
        RUN(AU09_the_comparison_time_does_not_reveal_correct_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
