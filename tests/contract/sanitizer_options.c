/* The runtime starts with an empty environment and is not dumpable, so its sanitizer options are
 * set here instead of in a variable: no leak detection (it needs ptrace), and an exit status that
 * the tests recognize. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0:exitcode=86:abort_on_error=0";
}

const char *__ubsan_default_options(void)
{
    return "halt_on_error=1:exitcode=86";
}
