/* Questions of the server. A legacy server sends requests of its own; a modern one ends the call
 * with the questions, and the call is repeated with the answers and the server's state. The
 * receiver of a question owns it until it is answered, so the end of a call only detaches its
 * questions. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <assert.h>

bool mcp_question_is_enabled(const struct mcp_client *c, const char *method)
{
    if (!c->ops.on_question)
        return false;
    return (c->answers_elicitation && str_eq(method, "elicitation/create")) ||
           (c->answers_sampling && str_eq(method, "sampling/createMessage")) ||
           (c->answers_roots && str_eq(method, "roots/list"));
}

const char *mcp_question_method(const struct mcp_question *q)
{
    return q->method;
}

const json_t *mcp_question_params(const struct mcp_question *q)
{
    return q->params;
}

static void mcp_question_free(struct mcp_question *q)
{
    if (q->client)
        list_remove(&q->client->questions, q);
    free(q->method);
    free(q->key);
    json_decref(q->params);
    json_decref(q->id);
    free(q);
}

void mcp_question_add(struct mcp_client *c, struct mcp_client_call *call, const char *method, const json_t *params,
                      const json_t *id, const char *key)
{
    struct mcp_question *q = mem_new(struct mcp_question);

    q->client = c;
    q->call = call;
    q->method = str_dup(method);
    q->params = params ? json_incref((json_t *)params) : json_object();
    q->id = id ? json_incref((json_t *)id) : NULL;
    q->key = key ? str_dup(key) : NULL;
    list_push(&c->questions, q);
    if (call)
        call->open_questions++;
    c->ops.on_question(c->arg, q);
}

void mcp_question_drop_all(struct mcp_client *c, const struct mcp_client_call *call)
{
    for (struct mcp_question *q = c->questions, *next; q; q = next) {
        next = q->next;
        if (call && q->call != call)
            continue;
        list_remove(&c->questions, q);
        q->client = NULL;
        q->call = NULL;
    }
}

/* --- answers --- */

static void mcp_question_settle(struct mcp_question *q, json_t *result)
{
    struct mcp_client *c = q->client;
    struct mcp_client_call *call = q->call;
    struct err err = { 0 };

    if (!c) {
        json_decref(result);
        mcp_question_free(q);
        return;
    }
    assert(call || q->id); /* only a question with an id outlives its call */
    if (call)
        call->open_questions--;
    if (q->id) {
        mcp_send_answer(c, q->id, result);
    } else if (result) {
        json_object_set(call->input_responses, q->key, result);
        if (call->open_questions == 0 && call->state == MCP_REQUEST_ASKING)
            mcp_client_call_proceed(call);
    } else {
        err_set(&err, ERR_MCP_INPUT, "%s: the server's question %s was refused", mcp_client_call_method(call->method),
                q->method);
        mcp_client_call_fail(call, &err);
    }
    json_decref(result);
    mcp_question_free(q);
}

void mcp_question_answer(struct mcp_question *q, json_t *result)
{
    mcp_question_settle(q, result);
}

void mcp_question_refuse(struct mcp_question *q)
{
    mcp_question_settle(q, NULL);
}

/* --- a round of a modern server --- */

static int mcp_question_check(const struct mcp_client_call *call, const json_t *questions, struct err *err)
{
    const json_t *q;
    const char *key;

    if (questions && (!json_is_object(questions) || json_object_size(questions) > MCP_QUESTIONS_MAX))
        return err_set(err, ERR_MCP_PROTOCOL, "%s: inputRequests is not an object of at most %u questions",
                       mcp_client_call_method(call->method), MCP_QUESTIONS_MAX);
    json_object_foreach((json_t *)questions, key, q)
    {
        const char *method = json_string_value(json_object_get(q, "method"));
        const json_t *params = json_object_get(q, "params");

        if (!method || (params && !json_is_object(params)))
            return err_set(err, ERR_MCP_PROTOCOL, "%s: a question of the server has no method",
                           mcp_client_call_method(call->method));
        if (!mcp_question_is_enabled(call->client, method))
            return err_set(err, ERR_MCP_INPUT, "%s: the server asks for %.40s, which is not enabled here",
                           mcp_client_call_method(call->method), method);
    }
    return 0;
}

int mcp_question_start_round(struct mcp_client_call *call, const json_t *result, struct err *err)
{
    json_t *questions = json_object_get(result, "inputRequests"), *state = json_object_get(result, "requestState"), *q;
    const char *key;

    if (call->method != MCP_CALL_TOOL && call->method != MCP_READ_RESOURCE && call->method != MCP_GET_PROMPT)
        return err_set(err, ERR_MCP_PROTOCOL, "%s: the server asks questions, which this method does not allow",
                       mcp_client_call_method(call->method));
    if (++call->rounds > MCP_ROUNDS_MAX)
        return err_set(err, ERR_MCP_LIMIT, "%s: the server asked questions more than %u times",
                       mcp_client_call_method(call->method), MCP_ROUNDS_MAX);
    if (state && (!json_is_string(state) || json_string_length(state) > MCP_STATE_MAX))
        return err_set(err, ERR_MCP_PROTOCOL, "%s: requestState is not a string of at most %llu bytes",
                       mcp_client_call_method(call->method), MCP_STATE_MAX);
    if (mcp_question_check(call, questions, err) < 0)
        return -1;
    json_decref(call->request_state);
    call->request_state = state ? json_incref(state) : NULL;
    json_decref(call->input_responses);
    call->input_responses = json_object();
    call->state = MCP_REQUEST_ASKING;
    mcp_exchange_cancel(take_ptr(&call->exchange));
    /* A receiver that answers at once must not complete the round before the last question. */
    call->open_questions = 1;
    json_object_foreach(questions, key, q)
    {
        if (call->state != MCP_REQUEST_ASKING)
            break; /* an earlier one was refused */
        mcp_question_add(call->client, call, json_string_value(json_object_get(q, "method")),
                         json_object_get(q, "params"), NULL, key);
    }
    call->open_questions--;
    if (call->open_questions == 0 && call->state == MCP_REQUEST_ASKING)
        mcp_client_call_proceed(call);
    return 0;
}
