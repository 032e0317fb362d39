/* conf_file.h - internal interface between conf.c and conf_file.c. */
#pragma once

#include "main/conf/conf.h"

/* Sets a value from the file. */
int conf_set(struct conf *c, enum conf_setting s, const char *text, uint32_t line, struct err *err);
