/* _covezygote - the part of a Python zygote that is not Python: orders of the jailer, and the fork into a sandbox.
 *
 * The limited API, so that one build serves every Python from 3.7 on. */
#define Py_LIMITED_API 0x03070000
#include <Python.h>

#include "core/base/buf.h"
#include "policy/level.h"
#include "host/zygote/interpreter.h"
#include "host/zygote/serve.h"
#include "host/zygote/cmdline_wipe.h"

#include <unistd.h>

static PyObject *zygote_module_tie(PyObject *self UNUSED, PyObject *none UNUSED)
{
    struct err err;

    if (zygote_die_with_socket(ZYGOTE_FD, &err) == 0)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_OSError, err.msg);
    return NULL;
}

static PyObject *zygote_module_ready(PyObject *self UNUSED, PyObject *none UNUSED)
{
    zygote_send_event(ZYGOTE_FD, ZYGOTE_READY, NULL);
    Py_RETURN_NONE;
}

static PyObject *zygote_module_failed(PyObject *self UNUSED, PyObject *args)
{
    const char *why;
    struct err err;

    if (!PyArg_ParseTuple(args, "s", &why))
        return NULL;
    err_set(&err, ERR_INVALID, "%.200s", why);
    zygote_send_event(ZYGOTE_FD, ZYGOTE_FAILED, &err);
    Py_RETURN_NONE;
}

/* The interpreter's own preparations stand around the fork, as in os.fork(). */
static PyObject *zygote_module_serve(PyObject *self UNUSED, PyObject *none UNUSED)
{
    static struct zygote_task task;

    while (zygote_receive_order(ZYGOTE_FD, &task)) {
        struct err err = { 0 };

        PyOS_BeforeFork();
        int rc = join_fork(&task.join, &err);
        if (rc == 1) {
            PyOS_AfterFork_Child();
            Py_RETURN_TRUE;
        }
        PyOS_AfterFork_Parent();
        zygote_answer_order(ZYGOTE_FD, &task, rc, &err);
    }
    Py_RETURN_FALSE;
}

/* As a claim has it whose sandbox was asked for without a word about its environment. */
static PyObject *zygote_module_usual_environment(PyObject *self UNUSED, PyObject *none UNUSED)
{
    auto_buf text = { 0 };

    for (const char *const *e = level_environment(LEVEL_STANDARD); *e; e++)
        buf_add(&text, *e, strlen(*e) + 1);
    return PyBytes_FromStringAndSize(text.data, (Py_ssize_t)text.len);
}

/* Interpreter, flag and script stay; what it was to load, and its environment, do not. */
static PyObject *zygote_module_wipe_cmdline(PyObject *self UNUSED, PyObject *none UNUSED)
{
    struct err err;

    if (cmdline_wipe(3, &err) == 0)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_OSError, err.msg);
    return NULL;
}

/* None: nobody yet. A member that cannot be walled in ends: there is nobody who could be told but PID 1, which notices.
 */
static PyObject *zygote_module_wait_for_claim(PyObject *self UNUSED, PyObject *none UNUSED)
{
    char *env;
    size_t len;
    struct err err;

    int rc = interpreter_wait_for_claim(ZYGOTE_FD, &env, &len, &err);
    if (rc == 2)
        Py_RETURN_NONE;
    if (rc != 0)
        _exit(125);
    PyObject *text = PyBytes_FromStringAndSize(env, (Py_ssize_t)len);
    free(env);
    return text;
}

PyMODINIT_FUNC PyInit__covezygote(void);
PyMODINIT_FUNC PyInit__covezygote(void)
{
    static PyMethodDef methods[] = {
        { "tie", zygote_module_tie, METH_NOARGS, "Until ready(), the end of the jailer's socket ends this process." },
        { "ready", zygote_module_ready, METH_NOARGS, "Tells the jailer that this process can be forked." },
        { "failed", zygote_module_failed, METH_VARARGS, "failed(why): tells it that it cannot." },
        { "serve", zygote_module_serve, METH_NOARGS,
          "True in a sandbox, in a new process; False when the jailer is gone." },
        { "usual", zygote_module_usual_environment, METH_NOARGS, "The environment of nearly every claim." },
        { "forget", zygote_module_wipe_cmdline, METH_NOARGS, "Leaves nothing in /proc of what it was started with." },
        { "claim", zygote_module_wait_for_claim, METH_NOARGS,
          "In a sandbox: waits until it has a user, and returns the environment; None: there is time until then." },
        { NULL, NULL, 0, NULL },
    };
    static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, .m_name = "_covezygote", .m_size = -1,
                                         .m_methods = methods };

    return PyModule_Create(&module);
}
