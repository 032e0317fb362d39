/* _covezygote - the C part of a Python zygote: requests of the jailer, and the fork into a sandbox.
 *
 * Uses the limited API, so that one build works with every Python from 3.7 on. */
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

/* The fork is surrounded by the interpreter's own fork hooks, as in os.fork(). */
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

/* The environment of a claim for a sandbox without environment options. */
static PyObject *zygote_module_usual_environment(PyObject *self UNUSED, PyObject *none UNUSED)
{
    auto_buf text = { 0 };

    for (const char *const *e = level_environment(LEVEL_STANDARD, NETWORK_NONE); *e; e++)
        buf_add(&text, *e, strlen(*e) + 1);
    return PyBytes_FromStringAndSize(text.data, (Py_ssize_t)text.len);
}

/* Keeps interpreter, flag and script; removes the list of modules and the environment. */
static PyObject *zygote_module_wipe_cmdline(PyObject *self UNUSED, PyObject *none UNUSED)
{
    struct err err;

    if (cmdline_wipe(3, &err) == 0)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_OSError, err.msg);
    return NULL;
}

/* None: no claim yet. An interpreter that cannot apply its walls exits; PID 1 notices that. */
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
        { "ready", zygote_module_ready, METH_NOARGS, "Reports to the jailer that this process can be forked." },
        { "failed", zygote_module_failed, METH_VARARGS,
          "failed(why): reports to the jailer that this process cannot be forked." },
        { "serve", zygote_module_serve, METH_NOARGS,
          "True in a sandbox, in a new process; False when the jailer is gone." },
        { "usual", zygote_module_usual_environment, METH_NOARGS, "The environment of nearly every claim." },
        { "forget", zygote_module_wipe_cmdline, METH_NOARGS,
          "Removes the arguments and the environment of the start from /proc." },
        { "claim", zygote_module_wait_for_claim, METH_NOARGS,
          "In a sandbox: waits for the claim, and returns the environment; None: warm up, then call again." },
        { NULL, NULL, 0, NULL },
    };
    static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, .m_name = "_covezygote", .m_size = -1,
                                         .m_methods = methods };

    return PyModule_Create(&module);
}
