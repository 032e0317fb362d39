/* A result as JSON. */
#include "core/calc/calc.h"

const char *calc_confidence(const struct calc_result *c)
{
    return c->method == CALC_BY_EXPRESSION ? "0.95" : c->method == CALC_BY_WORDS ? "0.85" : "0.1";
}

const char *calc_type_name(enum calc_type t)
{
    static const char *const names[] = { "arithmetic", "percentage", "function", "comparison", "unknown" };

    return names[t];
}

const char *calc_method_name(enum calc_method m)
{
    static const char *const names[] = { "expression", "words", "none" };

    return names[m];
}

void calc_result_json(const struct calc_result *c, struct jsonw *w)
{
    jsonw_key(w, "answer");
    if (c->answer)
        jsonw_str(w, c->answer);
    else
        jsonw_null(w);
    jsonw_kbool(w, "exact", c->exact);
    jsonw_kstr_if(w, "fraction", c->fraction);
    jsonw_kstr_if(w, "decimal", c->decimal);
    if (c->decimal)
        jsonw_kbool(w, "decimalExact", c->decimal_exact);
    if (c->digits)
        jsonw_ku64(w, "digits", c->digits);
    jsonw_kstr_if(w, "errorBound", c->error_bound);
    jsonw_kstr(w, "problemType", calc_type_name(c->type));
    jsonw_kstr(w, "method", calc_method_name(c->method));
    jsonw_kraw(w, "confidence", calc_confidence(c));
    jsonw_kstr_if(w, "expression", c->expression);
    jsonw_kstr_if(w, "explanation", c->explanation);
    if (!c->steps)
        return;
    jsonw_karray(w, "steps");
    for (size_t i = 0; i < c->nsteps; i++)
        jsonw_str(w, c->steps[i]);
    jsonw_end_array(w);
    if (c->omitted_steps)
        jsonw_ku64(w, "omittedSteps", c->omitted_steps);
}
