/* Expressions and problems in words: from any client to the server.
 *
 * Checked in addition to memory errors: a result is exact or says to how many digits it is rounded;
 * an error has a code of the calculator and a message; and the formula of a result gives the same
 * answer when it is computed again. */
#include "core/calc/calc.h"

#include "core/base/str.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_again(const struct calc_result *c, const struct calc_settings *set)
{
    struct calc_settings formula = { .digits = set->digits };
    struct calc_result again;
    struct err err = { 0 };

    must(calc_solve(c->expression, strlen(c->expression), &formula, &again, &err) == 0);
    must(str_eq(again.answer, c->answer) && again.exact == c->exact);
    calc_result_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct calc_settings set = { .words = true, .steps = true, .digits = size > 0 ? data[0] % 64u : 0 };
    struct calc_result c;
    struct err err = { 0 };

    if (size > 0)
        data++, size--;
    if (calc_solve((const char *)data, size, &set, &c, &err) < 0) {
        must(err.id >= ERR_CALC_SYNTAX && err.id <= ERR_CALC_LIMIT && err.msg[0]);
        return 0;
    }
    if (c.type == CALC_UNKNOWN) {
        must(!c.answer && c.explanation && c.explanation[0]);
    } else {
        must(c.answer && c.answer[0] && c.expression && (c.exact || c.digits || c.error_bound));
        must(!c.fraction || c.exact);
        check_again(&c, &set);
    }
    calc_result_done(&c);
    return 0;
}
