#include "sandbox/template_builtins.h"

#include "core/base/str.h"

/* clang-format off */
#define PYTHON_USUAL_MODULES \
    "json,re,math,random,statistics,datetime,time,calendar,collections,itertools,functools,operator,string,textwrap," \
    "pathlib,os,io,csv,tempfile,shutil,subprocess,hashlib,base64,uuid,decimal,fractions,dataclasses,enum,typing," \
    "contextlib,copy,urllib.parse,zlib,heapq,bisect,pprint,inspect,threading,logging,struct,traceback"
/* clang-format on */

/* The tier simple: 100 MiB of memory, 16 MiB in /workspace and in /tmp, 8 MiB in /dev/shm. */
#define SNIPPET_LIMITS                                                                       \
    "\"resources\":{\"cpuMillis\":1000,\"memoryBytes\":104857600,\"storageBytes\":16777216," \
    "\"tmpBytes\":16777216,\"shmBytes\":8388608,\"pids\":32},\"network\":\"none\",\"timeoutMs\":10000"

const char template_python_preload[] = PYTHON_USUAL_MODULES;

static const struct template_builtin template_builtins[] = {
    { "bash", "bash", NULL, NULL },
    { "node", "node", NULL, NULL },
    { "python", "python", PYTHON_USUAL_MODULES, NULL },
    { "python-data", "python", PYTHON_USUAL_MODULES ",numpy,pandas,matplotlib,matplotlib.pyplot", NULL },
    { "snippet", "python", PYTHON_USUAL_MODULES, SNIPPET_LIMITS },
};

const struct template_builtin *template_builtin_list(size_t *count)
{
    *count = ARRAY_LEN(template_builtins);
    return template_builtins;
}

const struct template_builtin *template_builtin_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(template_builtins); i++)
        if (str_eq(template_builtins[i].name, name))
            return &template_builtins[i];
    return NULL;
}
