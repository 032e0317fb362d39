/* Requests of the caller about one execution: input, signals, sizes of the terminal, credit,
 * figures. A request that arrives before EXEC was sent is kept in the execution and sent after
 * it. */
#include "sandbox/engine_internal.h"

/* --- frames --- */

void exec_handle_send_signal(struct exec_handle *x, int signo, enum rt_scope scope)
{
    struct rt_signal m = { .signo = (uint32_t)signo, .scope = (uint8_t)scope };
    PAYLOAD(payload);
    int len = rt_signal_encode(&m, payload, NULL);

    if (len > 0 && x->stream)
        sandbox_stream_send_frame(x->stream, FRAME_SIGNAL, 0, payload, (uint32_t)len);
}

void exec_handle_send_resize(struct exec_handle *x)
{
    struct rt_resize m = { .rows = x->rows, .cols = x->cols };
    PAYLOAD(payload);
    int len = rt_resize_encode(&m, payload, NULL);

    if (len > 0 && x->stream)
        sandbox_stream_send_frame(x->stream, FRAME_RESIZE, 0, payload, (uint32_t)len);
}

void exec_handle_send_stdin_end(struct exec_handle *x)
{
    if (x->stream && !x->stdin_ended)
        sandbox_stream_send_frame(x->stream, FRAME_DATA, RT_STDIN | RT_END, NULL, 0);
    x->stdin_ended = true;
}

/* --- requests of the caller --- */

void exec_handle_hold_credit(struct exec_handle *x, bool hold)
{
    size_t n = hold ? 0 : x->uncredited_bytes;

    x->credit_held = hold;
    if (n == 0)
        return;
    x->uncredited_bytes = 0;
    if (x->stream && x->state == EXEC_RUNNING)
        sandbox_stream_consumed(x->stream, n);
}

size_t exec_handle_write(struct exec_handle *x, const void *data, size_t len)
{
    size_t n = 0;

    if (!x->stdin_open || x->stdin_ended || x->stdin_end_wanted || x->state >= EXEC_COLLECTING)
        return 0;
    if (x->state != EXEC_PREPARING && x->stream)
        n = sandbox_stream_write(x->stream, RT_STDIN, data, len);
    x->write_wanted = n < len;
    return n;
}

size_t exec_handle_write_language_kernel(struct exec_handle *x, const void *data, size_t len)
{
    size_t n = 0;

    if (!x->is_language_kernel || x->state >= EXEC_COLLECTING)
        return 0;
    if (x->state != EXEC_PREPARING && x->stream)
        n = sandbox_stream_write(x->stream, RT_KERNEL, data, len);
    x->write_wanted = x->write_wanted || n < len;
    return n;
}

void exec_handle_write_end(struct exec_handle *x)
{
    if (!x->stdin_open || x->state >= EXEC_COLLECTING)
        return;
    if (x->state == EXEC_PREPARING)
        x->stdin_end_wanted = true;
    else
        exec_handle_send_stdin_end(x);
}

void exec_handle_signal(struct exec_handle *x, int signo)
{
    if (x->state == EXEC_PREPARING)
        x->signal_wanted = signo;
    else if (x->state < EXEC_COLLECTING)
        exec_handle_send_signal(x, signo, RT_SCOPE_GROUP);
}

void exec_handle_resize(struct exec_handle *x, uint16_t rows, uint16_t cols)
{
    x->rows = rows;
    x->cols = cols;
    if (x->state == EXEC_PREPARING)
        x->resize_wanted = true;
    else if (x->state < EXEC_COLLECTING)
        exec_handle_send_resize(x);
}

void exec_handle_kill(struct exec_handle *x)
{
    exec_handle_end(x, ENDED_KILLED);
}

uint32_t exec_handle_stream_id(const struct exec_handle *x)
{
    return x->stream_id;
}

uint64_t exec_handle_cpu_base(const struct exec_handle *x)
{
    return x->cpu_base == CPU_UNKNOWN ? 0 : x->cpu_base;
}

uint64_t exec_handle_dropped_bytes(const struct exec_handle *x, int channel)
{
    return x->dropped_bytes[channel == RT_STDERR];
}

const struct receipt *exec_handle_receipt(const struct exec_handle *x)
{
    return &x->receipt;
}
