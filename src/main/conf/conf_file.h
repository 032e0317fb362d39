/* conf_file.h - what conf.c and conf_file.c share. */
#pragma once

#include "main/conf/conf.h"

int conf_set(struct conf *c, enum conf_setting s, const char *text, uint32_t line, struct err *err); /* from the file */
