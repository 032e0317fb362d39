#include "tests/unit/test.h"

#include "service/execute/result_cache.h"
#include "service/execute/executor.h"

static void key_of(unsigned n, uint8_t ret[RESULT_CACHE_KEY_SIZE])
{
    memset(ret, 0, RESULT_CACHE_KEY_SIZE);
    ret[0] = (uint8_t)n;
    ret[31] = (uint8_t)(n >> 8);
}

static void put(struct result_cache *c, unsigned n, size_t len, uint64_t now)
{
    auto_buf answer = { 0 };
    uint8_t key[RESULT_CACHE_KEY_SIZE];

    key_of(n, key);
    for (size_t i = 0; i < len; i++)
        buf_add(&answer, &(char){ (char)('a' + n % 26) }, 1);
    result_cache_put(c, key, &answer, now);
}

static const struct buf *get(struct result_cache *c, unsigned n, uint64_t now)
{
    uint8_t key[RESULT_CACHE_KEY_SIZE];

    key_of(n, key);
    return result_cache_get(c, key, now);
}

TEST(a_result_is_returned_until_it_expires)
{
    auto_(result_cache) c = result_cache_new(1 << 20, 1000);

    put(c, 1, 10, 5000);
    assert_non_null(get(c, 1, 5000));
    assert_int_equal(get(c, 1, 5999)->len, 10);
    assert_null(get(c, 2, 5999));
    assert_null(get(c, 1, 6000));
    assert_int_equal(result_cache_entries(c), 0);
    put(c, 1, 10, 7000);
    assert_null(get(c, 1, 6999)); /* a clock that is set back does not renew an entry */
}

TEST(the_least_recently_used_result_is_evicted_first)
{
    auto_(result_cache) c = result_cache_new(10 * 1256, UINT64_MAX);

    for (unsigned i = 0; i < 10; i++)
        put(c, i, 1000, 1);
    assert_int_equal(result_cache_entries(c), 10);
    assert_non_null(get(c, 0, 1));
    put(c, 10, 1000, 1);
    assert_non_null(get(c, 0, 1));
    assert_null(get(c, 1, 1));
    assert_non_null(get(c, 2, 1));
    assert_true(result_cache_bytes(c) <= 10 * 1256);
}

TEST(small_results_are_limited_too_and_a_large_one_is_not_cached)
{
    auto_(result_cache) c = result_cache_new(100000, UINT64_MAX);

    for (unsigned i = 0; i < 5000; i++)
        put(c, i, 1, 1);
    assert_true(result_cache_bytes(c) <= 100000);
    assert_true(result_cache_entries(c) < 400);
    put(c, 9999, 20000, 1);
    assert_null(get(c, 9999, 1));
    auto_(result_cache) none = result_cache_new(0, UINT64_MAX);
    put(none, 1, 1, 1);
    assert_null(get(none, 1, 1));
}

TEST(a_result_replaces_the_previous_one_with_its_key)
{
    auto_(result_cache) c = result_cache_new(1 << 20, UINT64_MAX);

    put(c, 1, 10, 1);
    put(c, 1, 20, 2);
    assert_int_equal(get(c, 1, 2)->len, 20);
    assert_int_equal(result_cache_entries(c), 1);
}

/* --- the key --- */

static struct spec base_spec;
static struct run_file files[] = { { (char *)"/workspace/a", "one", 3 }, { (char *)"/workspace/b", "two", 3 } };
static const char *const env[] = { "A=1", NULL }, *const outputs[] = { "/workspace/x", NULL },
                         *const words[] = { "ls", "-l", NULL };

static struct run_request request(struct spec *spec)
{
    return (struct run_request){ .owner = "acme",
                                 .created_by = "kyone",
                                 .spec = spec,
                                 .template = "t",
                                 .generation = 3,
                                 .code = "1",
                                 .language = "python",
                                 .input = "in",
                                 .input_len = 2,
                                 .env = env,
                                 .cwd = "/tmp",
                                 .timeout_ms = 1000,
                                 .output_max = 2000,
                                 .files = files,
                                 .nfiles = 2,
                                 .outputs = outputs,
                                 .is_cacheable = true };
}

static bool same(const struct run_request *a, const struct run_request *b)
{
    uint8_t x[RESULT_CACHE_KEY_SIZE], y[RESULT_CACHE_KEY_SIZE];

    assert_true(result_cache_make_key(a, x));
    assert_true(result_cache_make_key(b, y));
    return memcmp(x, y, RESULT_CACHE_KEY_SIZE) == 0;
}

static const char *const env_more[] = { "A=1", "B=2", NULL }, *const env_split[] = { "A=1B", "=2", NULL };
static const char *const words_joined[] = { "ls-l", NULL };
static struct run_file moved[] = { { (char *)"/workspace/ao", "ne", 2 }, { (char *)"/workspace/b", "two", 3 } };

TEST(every_part_of_a_request_is_part_of_its_key)
{
    struct run_request a = request(&base_spec), b;

#define DIFFERS(change)             \
    do {                            \
        b = request(&base_spec);    \
        change;                     \
        assert_false(same(&a, &b)); \
    } while (0)
    b = request(&base_spec);
    assert_true(same(&a, &b));
    b.created_by = "another";
    assert_true(same(&a, &b)); /* users of one tenant share results */
    DIFFERS(b.owner = "other");
    DIFFERS(b.template = "u");
    DIFFERS(b.template = NULL);
    DIFFERS(b.generation = 4);
    DIFFERS(b.code = "2");
    DIFFERS(b.code = NULL; b.argv = words);
    DIFFERS(b.language = "node");
    DIFFERS(b.input_len = 1);
    DIFFERS(b.input = NULL; b.input_len = 0);
    DIFFERS(b.input = ""; b.input_len = 0);
    DIFFERS(b.env = NULL);
    DIFFERS(b.env = env_more);
    DIFFERS(b.env = env_split);
    DIFFERS(b.cwd = NULL);
    DIFFERS(b.timeout_ms = 1001);
    DIFFERS(b.output_max = 2001);
    DIFFERS(b.nfiles = 1);
    DIFFERS(b.files = moved);
    DIFFERS(b.outputs = NULL);
    DIFFERS(b.cached_if_pure = true); /* random numbers that one client chose to cache */
    DIFFERS(b.argv = words);
    struct run_request p = request(&base_spec), q = p;
    p.argv = words;
    q.argv = words_joined;
    assert_false(same(&p, &q));
}

TEST(every_part_of_the_sandbox_is_part_of_the_key)
{
    struct spec other;
    struct run_request a = request(&base_spec), b = request(&other);
    char *with[] = { (char *)"X=1", NULL };

#define SPEC_DIFFERS(change)        \
    do {                            \
        other = base_spec;          \
        change;                     \
        assert_false(same(&a, &b)); \
    } while (0)
    other = base_spec;
    assert_true(same(&a, &b));
    SPEC_DIFFERS(strcpy(other.runtime, "node"));
    SPEC_DIFFERS(other.level = LEVEL_HIGH);
    SPEC_DIFFERS(other.grants = 1);
    SPEC_DIFFERS(other.deny[0] = 1);
    SPEC_DIFFERS(other.has_profile = true);
    SPEC_DIFFERS(other.env = with);
    SPEC_DIFFERS(other.policy = (char *)"{\"name\":\"p\"}");
    SPEC_DIFFERS(strcpy(other.hidden_paths[0], "/usr/share"); other.nhidden_paths = 1);
    for (int l = 0; l < LIMIT_COUNT; l++)
        SPEC_DIFFERS(other.limits.v[l]++);
}

static int setup(void **state UNUSED)
{
    spec_init(&base_spec);
    strcpy(base_spec.runtime, "python");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_is_returned_until_it_expires),
        cmocka_unit_test(the_least_recently_used_result_is_evicted_first),
        cmocka_unit_test(small_results_are_limited_too_and_a_large_one_is_not_cached),
        cmocka_unit_test(a_result_replaces_the_previous_one_with_its_key),
        cmocka_unit_test(every_part_of_a_request_is_part_of_its_key),
        cmocka_unit_test(every_part_of_the_sandbox_is_part_of_the_key),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
