/* contract-json.c - writes a YAML file as JSON on standard output: api/openapi.yaml, at build time.
 *
 * Plain scalars become null, a boolean or a number if they have that form, quoted ones strings.
 * Anchors, aliases and tags are refused: the contract has none. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

static yaml_parser_t parser;

static void contract_fail(const char *what)
{
    fprintf(stderr, "contract-json: line %zu: %s\n", parser.mark.line + 1, what);
    exit(1);
}

static void contract_next(yaml_event_t *e)
{
    if (!yaml_parser_parse(&parser, e))
        contract_fail(parser.problem ? parser.problem : "cannot be read");
}

static void contract_put_string(const char *text)
{
    putchar('"');
    for (const char *p = text; *p; p++)
        if (*p == '"' || *p == '\\')
            printf("\\%c", *p);
        else if ((unsigned char)*p < 0x20)
            printf("\\u%04x", (unsigned char)*p);
        else
            putchar(*p);
    putchar('"');
}

/* JSON's own form of a number, which is narrower than YAML's. */
static bool contract_is_number(const char *p)
{
    p += *p == '-';
    if (!isdigit((unsigned char)*p) || (p[0] == '0' && isdigit((unsigned char)p[1])))
        return false;
    p += strspn(p, "0123456789");
    if (*p == '.' && isdigit((unsigned char)p[1]))
        p += 1 + strspn(p + 1, "0123456789");
    return *p == '\0';
}

static void contract_put_scalar(const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    if (e->data.scalar.anchor || e->data.scalar.tag)
        contract_fail("anchors and tags are not allowed");
    if (plain && (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0))
        fputs("null", stdout);
    else if (plain && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || contract_is_number(text)))
        fputs(text, stdout);
    else
        contract_put_string(text);
}

static void contract_put_value(const yaml_event_t *first)
{
    bool is_map = first->type == YAML_MAPPING_START_EVENT;
    yaml_event_type_t end = is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    yaml_event_t e;

    if (first->type == YAML_SCALAR_EVENT) {
        contract_put_scalar(first);
        return;
    }
    if (!is_map && first->type != YAML_SEQUENCE_START_EVENT)
        contract_fail("aliases are not allowed");
    putchar(is_map ? '{' : '[');
    contract_next(&e);
    for (size_t n = 0; e.type != end; n++) {
        if (n)
            putchar(',');
        if (is_map) {
            if (e.type != YAML_SCALAR_EVENT)
                contract_fail("a key must be a single value");
            contract_put_string((const char *)e.data.scalar.value);
            putchar(':');
            yaml_event_delete(&e);
            contract_next(&e);
        }
        contract_put_value(&e);
        yaml_event_delete(&e);
        contract_next(&e);
    }
    yaml_event_delete(&e);
    putchar(is_map ? '}' : ']');
}

int main(int argc, char **argv)
{
    FILE *f = argc == 2 ? fopen(argv[1], "re") : NULL;
    yaml_event_t e;

    if (!f) {
        fputs("usage: contract-json FILE\n", stderr);
        return 2;
    }
    yaml_parser_initialize(&parser);
    yaml_parser_set_input_file(&parser, f);
    do { /* the start of the stream and of the document */
        contract_next(&e);
    } while (e.type == YAML_STREAM_START_EVENT || e.type == YAML_DOCUMENT_START_EVENT);
    contract_put_value(&e);
    putchar('\n');
    yaml_event_delete(&e);
    yaml_parser_delete(&parser);
    fclose(f);
    return 0;
}
