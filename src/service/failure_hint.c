#include "service/failure_hint.h"

#include "service/spec.h"

void failure_hint_add_event(struct failure *f, const struct kernel_event *e)
{
    const char *name = json_string_value(json_object_get(e->root, "name"));
    const char *value = json_string_value(json_object_get(e->root, "value"));
    const json_t *lines = json_object_get(e->root, "traceback"), *line;
    auto_buf traceback = { 0 };
    size_t i;

    json_array_foreach(lines, i, line)
    {
        buf_adds(&traceback, json_string_value(line) ? json_string_value(line) : "");
        buf_adds(&traceback, "\n");
    }
    if (name)
        failure_set_exception(f, name, value, traceback.data);
}

/* NULL: only a policy sets it. */
static const char *failure_hint_setting(enum limit l)
{
    switch (l) {
    case LIMIT_CPU:
    case LIMIT_MEMORY:
    case LIMIT_WORKSPACE:
    case LIMIT_PIDS:
    case LIMIT_WALL:
    case LIMIT_LIFETIME:
    case LIMIT_IDLE:
    case LIMIT_OUTPUT:
    case LIMIT_CPU_TIME:
        return spec_limit_name(l);
    default:
        return NULL;
    }
}

static void failure_hint_on_modules(void *arg UNUSED, const struct python_modules *modules UNUSED)
{
}

bool failure_hint_write(const struct failure *f, enum hint_place place, const struct receipt *r,
                        struct host_modules *modules, uint64_t now_ns, char ret[HINT_MAX])
{
    struct hint_facts facts = { .place = place, .has_program = hint_host_has_program, .setting = failure_hint_setting };
    struct limit_hit hits[LIMIT_COUNT];

    hint_facts_from_receipt(&facts, r, hits);
    failure_fill_facts(f, &facts);
    facts.context_reset = r->context_reset;
    if (modules && failure_needs_modules(f)) {
        host_modules_get(modules, NULL, now_ns, failure_hint_on_modules, NULL);
        facts.modules = host_modules_last(modules);
    }
    return hint_write(&facts, ret);
}
