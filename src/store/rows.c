/* The tables are written by hand, with little else in this file, so that a new struct member
 * must be added in only one place besides the schema; the contract suite fills every column and
 * reads it back. */
#include "store/rows.h"

#include "core/base/jsonr.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define COLUMN(s, member, kind, ...)                                                 \
    {                                                                                \
        .name = #member, .type = kind, .at = offsetof(struct s, member), __VA_ARGS__ \
    }
#define FIXED(s, member, ...) COLUMN(s, member, ROW_FIXED, .cap = sizeof(((struct s *)0)->member), __VA_ARGS__)
#define ITEM(s, member, index, column, ...)                                                                         \
    {                                                                                                               \
        .name = column, .type = ROW_U64, .at = offsetof(struct s, member) + (index) * sizeof(uint64_t), __VA_ARGS__ \
    }

static const char *const sandbox_states[STORE_SANDBOX_STATES] = { "creating", "running", "paused", "ended" };
static const char *const execution_states[STORE_EXECUTION_STATES] = { "starting", "running", "ended", "failed" };

static const struct row_column sandbox_columns[] = {
    FIXED(store_sandbox, id),
    FIXED(store_sandbox, owner),
    COLUMN(store_sandbox, state, ROW_STATE, .set = STORE_SANDBOX_SET_STATE),
    COLUMN(store_sandbox, name, ROW_TEXT, .set = STORE_SANDBOX_SET_NAME),
    COLUMN(store_sandbox, template, ROW_TEXT),
    COLUMN(store_sandbox, runtime, ROW_TEXT),
    COLUMN(store_sandbox, level, ROW_TEXT),
    COLUMN(store_sandbox, spec_json, ROW_TEXT, .set = STORE_SANDBOX_SET_SPEC),
    COLUMN(store_sandbox, memory_bytes, ROW_U64, .set = STORE_SANDBOX_SET_SPEC),
    COLUMN(store_sandbox, storage_bytes, ROW_U64, .set = STORE_SANDBOX_SET_SPEC),
    COLUMN(store_sandbox, created_by, ROW_TEXT),
    COLUMN(store_sandbox, metadata_json, ROW_TEXT, .set = STORE_SANDBOX_SET_METADATA, .is_string_map = true),
    COLUMN(store_sandbox, created_ms, ROW_U64),
    COLUMN(store_sandbox, expires_ms, ROW_U64, .set = STORE_SANDBOX_SET_EXPIRES),
    COLUMN(store_sandbox, ended_ms, ROW_U64, .set = STORE_SANDBOX_SET_ENDED),
    COLUMN(store_sandbox, ended_by, ROW_TEXT, .set = STORE_SANDBOX_SET_ENDED),
    COLUMN(store_sandbox, why_json, ROW_TEXT, .set = STORE_SANDBOX_SET_ENDED),
    COLUMN(store_sandbox, receipt_json, ROW_TEXT, .set = STORE_SANDBOX_SET_RECEIPT),
    COLUMN(store_sandbox, cpu_us, ROW_U64, .is_generated = true),
    COLUMN(store_sandbox, generation, ROW_U64, .is_generated = true),
};

static const struct row_column execution_columns[] = {
    FIXED(store_execution, id),
    FIXED(store_execution, sandbox),
    FIXED(store_execution, owner),
    COLUMN(store_execution, state, ROW_STATE, .set = STORE_EXECUTION_SET_STATE),
    COLUMN(store_execution, request_json, ROW_TEXT),
    COLUMN(store_execution, background, ROW_BOOL),
    COLUMN(store_execution, tty, ROW_BOOL),
    FIXED(store_execution, context, .optional = true),
    COLUMN(store_execution, created_ms, ROW_U64),
    COLUMN(store_execution, started_ms, ROW_U64, .set = STORE_EXECUTION_SET_STARTED),
    COLUMN(store_execution, ended_ms, ROW_U64, .set = STORE_EXECUTION_SET_END),
    ITEM(store_execution, out_bytes, 0, "out_bytes1", .set = STORE_EXECUTION_SET_OUTPUT),
    ITEM(store_execution, out_bytes, 1, "out_bytes2", .set = STORE_EXECUTION_SET_OUTPUT),
    ITEM(store_execution, dropped, 0, "dropped1", .set = STORE_EXECUTION_SET_OUTPUT),
    ITEM(store_execution, dropped, 1, "dropped2", .set = STORE_EXECUTION_SET_OUTPUT),
    ITEM(store_execution, out_bytes, 2, "out_bytes3", .set = STORE_EXECUTION_SET_OUTPUT),
    ITEM(store_execution, dropped, 2, "dropped3", .set = STORE_EXECUTION_SET_OUTPUT),
    COLUMN(store_execution, exit_code, ROW_I32_OPT, .set = STORE_EXECUTION_SET_END,
           .flag_at = offsetof(struct store_execution, has_exit_code)),
    COLUMN(store_execution, signal, ROW_I32, .set = STORE_EXECUTION_SET_END),
    COLUMN(store_execution, ended_by, ROW_TEXT, .set = STORE_EXECUTION_SET_END),
    COLUMN(store_execution, outcome, ROW_TEXT, .set = STORE_EXECUTION_SET_END),
    COLUMN(store_execution, hint, ROW_TEXT, .set = STORE_EXECUTION_SET_END),
    COLUMN(store_execution, context_reset, ROW_BOOL, .set = STORE_EXECUTION_SET_END),
    COLUMN(store_execution, receipt_json, ROW_TEXT, .set = STORE_EXECUTION_SET_RECEIPT),
    COLUMN(store_execution, error_json, ROW_TEXT, .set = STORE_EXECUTION_SET_END),
    COLUMN(store_execution, idempotency, ROW_TEXT),
    COLUMN(store_execution, created_by, ROW_TEXT),
};

static const struct row_column key_columns[] = {
    FIXED(store_key, id),
    FIXED(store_key, owner),
    FIXED(store_key, user, .optional = true),
    COLUMN(store_key, name, ROW_TEXT, .set = STORE_KEY_SET_NAME),
    FIXED(store_key, prefix, .set = STORE_KEY_SET_SECRET),
    COLUMN(store_key, hash, ROW_HASH, .set = STORE_KEY_SET_SECRET),
    COLUMN(store_key, scopes, ROW_TEXT),
    COLUMN(store_key, created_ms, ROW_U64),
    COLUMN(store_key, expires_ms, ROW_U64, .set = STORE_KEY_SET_EXPIRES),
    COLUMN(store_key, last_used_ms, ROW_U64, .set = STORE_KEY_SET_LAST_USED),
    COLUMN(store_key, revoked_ms, ROW_U64, .set = STORE_KEY_SET_REVOKED),
};

static const struct row_column template_columns[] = {
    FIXED(store_template, name),
    COLUMN(store_template, spec_json, ROW_TEXT),
    COLUMN(store_template, generation, ROW_U64, .is_generated = true),
    COLUMN(store_template, created_ms, ROW_U64),
    COLUMN(store_template, updated_ms, ROW_U64),
};

static const struct row_column event_columns[] = {
    COLUMN(store_event, seq, ROW_U64, .is_generated = true),
    COLUMN(store_event, at_ms, ROW_U64),
    FIXED(store_event, owner),
    FIXED(store_event, sandbox, .optional = true),
    COLUMN(store_event, kind, ROW_TEXT),
    COLUMN(store_event, body_json, ROW_TEXT),
};

static const struct row_column idem_columns[] = {
    FIXED(store_idem, owner),
    COLUMN(store_idem, key, ROW_TEXT),
    COLUMN(store_idem, request_hash, ROW_HASH),
    FIXED(store_idem, resource, .optional = true, .set = STORE_IDEM_SET_RESOURCE),
    COLUMN(store_idem, status, ROW_I32, .set = STORE_IDEM_SET_RESPONSE),
    COLUMN(store_idem, body, ROW_TEXT, .set = STORE_IDEM_SET_RESPONSE),
    COLUMN(store_idem, at_ms, ROW_U64),
};

static const struct row_column charge_columns[] = {
    FIXED(store_charge, id),
    FIXED(store_charge, owner),
    COLUMN(store_charge, created_by, ROW_TEXT),
    COLUMN(store_charge, state, ROW_STATE),
    COLUMN(store_charge, created_ms, ROW_U64),
    COLUMN(store_charge, cpu_us, ROW_U64, .set = STORE_CHARGE_SET_CPU),
    COLUMN(store_charge, memory_bytes, ROW_U64),
    COLUMN(store_charge, storage_bytes, ROW_U64),
};

static const struct row_column removed_columns[] = {
    FIXED(store_removed, id),
    COLUMN(store_removed, output_bytes, ROW_U64),
};

static const struct row_column removed_user_columns[] = {
    FIXED(store_removed_user, owner),
    FIXED(store_removed_user, name),
    COLUMN(store_removed_user, removed_ms, ROW_U64),
};

static const struct row_column meta_columns[] = {
    COLUMN(store_meta, name, ROW_TEXT),
    COLUMN(store_meta, value, ROW_TEXT),
};

static const struct row_column metadata_columns[] = {
    FIXED(store_metadata, sandbox),
    COLUMN(store_metadata, key, ROW_TEXT),
    COLUMN(store_metadata, value, ROW_TEXT),
    FIXED(store_metadata, sandbox_owner),
    COLUMN(store_metadata, sandbox_created_ms, ROW_U64),
};

#define COLUMNS(c) .columns = (c), .n = ARRAY_LEN(c)

const struct row_table row_sandbox = { .name = "sandboxes",
                                       .display_name = "sandbox",
                                       .size = sizeof(struct store_sandbox),
                                       .key = "id",
                                       .owned = true,
                                       .has_generation = true,
                                       .states = sandbox_states,
                                       .nstates = STORE_SANDBOX_STATES,
                                       COLUMNS(sandbox_columns) };
const struct row_table row_execution = { .name = "executions",
                                         .display_name = "execution",
                                         .size = sizeof(struct store_execution),
                                         .key = "id",
                                         .owned = true,
                                         .states = execution_states,
                                         .nstates = STORE_EXECUTION_STATES,
                                         COLUMNS(execution_columns) };
const struct row_table row_key = { .name = "keys",
                                   .display_name = "key",
                                   .size = sizeof(struct store_key),
                                   .key = "id",
                                   .owned = true,
                                   COLUMNS(key_columns) };
const struct row_table row_template = { .name = "templates",
                                        .display_name = "template",
                                        .size = sizeof(struct store_template),
                                        .key = "name",
                                        .by_name = true,
                                        .has_generation = true,
                                        COLUMNS(template_columns) };
const struct row_table row_event = { .name = "events",
                                     .display_name = "event",
                                     .size = sizeof(struct store_event),
                                     .key = "seq",
                                     .owned = true,
                                     COLUMNS(event_columns) };
const struct row_table row_idem = { .name = "idempotency",
                                    .display_name = "idempotency key",
                                    .size = sizeof(struct store_idem),
                                    .key = "key",
                                    .primary_key = "owner, key",
                                    .owned = true,
                                    COLUMNS(idem_columns) };

const struct row_table row_charge = { .name = "sandboxes",
                                      .display_name = "sandbox",
                                      .size = sizeof(struct store_charge),
                                      .key = "id",
                                      .owned = true,
                                      .states = sandbox_states,
                                      .nstates = STORE_SANDBOX_STATES,
                                      COLUMNS(charge_columns) };
const struct row_table row_removed = { .name = "executions",
                                       .display_name = "execution",
                                       .size = sizeof(struct store_removed),
                                       .key = "id",
                                       COLUMNS(removed_columns) };
const struct row_table row_removed_user = { .name = "removed_users",
                                            .display_name = "removed user",
                                            .size = sizeof(struct store_removed_user),
                                            .key = "name",
                                            .primary_key = "owner, name",
                                            .owned = true,
                                            COLUMNS(removed_user_columns) };
const struct row_table row_meta = {
    .name = "meta", .display_name = "text", .size = sizeof(struct store_meta), .key = "name", COLUMNS(meta_columns)
};
const struct row_table row_metadata = { .name = "sandbox_metadata",
                                        .display_name = "metadata",
                                        .size = sizeof(struct store_metadata),
                                        .key = "sandbox",
                                        .primary_key = "sandbox, key",
                                        COLUMNS(metadata_columns) };

bool store_owner_valid(const char *owner)
{
    size_t n = strnlen(owner, STORE_OWNER_MAX + 1);

    if (n == 0 || n > STORE_OWNER_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = owner[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.", c)))
            return false;
    }
    return true;
}

int row_check_text(const char *what, const char *text, size_t max, struct err *err)
{
    size_t n = text ? strlen(text) : 0;
    uint32_t c;

    if (n > max)
        return err_set(err, ERR_INVALID, "%s: %zu bytes are too long; at most %zu are allowed", what, n, max);
    for (size_t i = 0, step; i < n; i += step)
        if (!(step = str_utf8(text + i, n - i, &c)))
            return err_set(err, ERR_INVALID, "%s: not UTF-8 at byte %zu", what, i);
    return 0;
}

static int row_check_string_map(const char *what, const char *text, struct err *err)
{
    struct json_doc doc;

    if (json_read(text, strlen(text), &doc, err) < 0)
        return err_wrap(err, "%s", what);
    bool good = doc.root->kind == JSON_OBJECT;
    for (const struct json *j = doc.root->child; good && j; j = j->next)
        good = j->kind == JSON_STRING;
    json_doc_done(&doc);
    return good ? 0 : err_set(err, ERR_INVALID, "%s: must be an object whose values are strings", what);
}

int row_check_column(const struct row_table *t, const struct row_column *c, const void *row, struct err *err)
{
    const char *fixed = ROW_CONST_AT(char, row, c);

    switch (c->type) {
    case ROW_FIXED:
        if (strnlen(fixed, c->cap) == c->cap)
            return err_set(err, ERR_BUG, "%s: %s is not NUL-terminated", t->display_name, c->name);
        if (!*fixed && !c->optional)
            return err_set(err, ERR_INVALID, "%s: %s is empty", t->display_name, c->name);
        return row_check_text(c->name, fixed, c->cap, err);
    case ROW_TEXT:
        if (row_check_text(c->name, *ROW_CONST_AT(char *, row, c), STORE_TEXT_MAX, err) < 0)
            return -1;
        return c->is_string_map && *ROW_CONST_AT(char *, row, c)
                   ? row_check_string_map(c->name, *ROW_CONST_AT(char *, row, c), err)
                   : 0;
    case ROW_U64:
        if (*ROW_CONST_AT(uint64_t, row, c) > INT64_MAX)
            return err_set(err, ERR_INVALID, "%s: %s is out of range", t->display_name, c->name);
        return 0;
    case ROW_STATE:
        if (*ROW_CONST_AT(unsigned, row, c) >= t->nstates)
            return err_set(err, ERR_BUG, "%s: state %u does not exist", t->display_name,
                           *ROW_CONST_AT(unsigned, row, c));
        return 0;
    default:
        return 0;
    }
}

int row_check(const struct row_table *t, const void *row, struct err *err)
{
    for (size_t i = 0; i < t->n; i++)
        if (row_check_column(t, &t->columns[i], row, err) < 0)
            return -1;
    const struct row_column *owner = row_column(t, "owner");
    if (owner && !store_owner_valid(ROW_CONST_AT(char, row, owner)))
        return err_set(err, ERR_INVALID, "%s: '%s' is not a valid owner", t->display_name,
                       ROW_CONST_AT(char, row, owner));
    return 0;
}

const struct row_column *row_column(const struct row_table *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (str_eq(t->columns[i].name, name))
            return &t->columns[i];
    return NULL;
}

void row_copy(const struct row_table *t, void *dst, const void *src)
{
    memcpy(dst, src, t->size);
    for (size_t i = 0; i < t->n; i++)
        if (t->columns[i].type == ROW_TEXT) {
            char **text = ROW_AT(char *, dst, &t->columns[i]);

            *text = *text ? str_dup(*text) : NULL;
        }
}

void row_done(const struct row_table *t, void *row)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->columns[i].type == ROW_TEXT)
            free(*ROW_AT(char *, row, &t->columns[i]));
}

size_t row_bytes(const struct row_table *t, const void *row)
{
    size_t sum = t->size;

    for (size_t i = 0; i < t->n; i++)
        if (t->columns[i].type == ROW_TEXT && *ROW_CONST_AT(char *, row, &t->columns[i]))
            sum += strlen(*ROW_CONST_AT(char *, row, &t->columns[i]));
    return sum;
}

void *row_list_add(const struct row_table *t, struct row_list *l)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 4;
        l->rows = mem_resize(l->rows, l->cap, t->size);
    }
    void *row = l->rows + l->n++ * t->size;
    memset(row, 0, t->size);
    return row;
}

void row_list_drop(const struct row_table *t, struct row_list *l)
{
    row_done(t, l->rows + --l->n * t->size);
}

void row_list_done(const struct row_table *t, struct row_list *l)
{
    while (l->n > 0)
        row_list_drop(t, l);
    free(l->rows);
    *l = (struct row_list){ 0 };
}
