/* calc_host.h - one expression, and the answer that it must have. */
#pragma once

#include "tests/unit/test.h"

#include "core/calc/calc.h"

struct calc_row {
    const char *text;
    const char *answer; /* NULL: an error */
    enum err_id error;
};

static inline void check_rows(const struct calc_row *rows, size_t n, const struct calc_settings *set)
{
    for (size_t i = 0; i < n; i++) {
        struct calc_result c;
        struct err err = { 0 };
        int rc = calc_solve(rows[i].text, strlen(rows[i].text), set, &c, &err);

        if (!rows[i].answer) {
            if (rc == 0)
                fail_msg("%.80s gives %.80s; expected: error %s", rows[i].text, c.answer ? c.answer : "no answer",
                         err_info(rows[i].error)->code);
            if (err.id != rows[i].error)
                fail_msg("%.80s: %s (%s); expected: error %s", rows[i].text, err.msg, err_info(err.id)->code,
                         err_info(rows[i].error)->code);
            continue;
        }
        if (rc < 0)
            fail_msg("%.80s: %s", rows[i].text, err.msg);
        const char *answer = c.answer ? c.answer : "";
        if (strcmp(answer, rows[i].answer) != 0)
            fail_msg("%.80s gives %.200s (%s); expected: %.200s", rows[i].text, answer,
                     c.explanation ? c.explanation : c.expression, rows[i].answer);
        calc_result_done(&c);
    }
}
