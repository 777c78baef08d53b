/* config_ini: the text of the INI file -> options, servers and routes. */
#ifndef CONFIG_INI_H
#define CONFIG_INI_H

#include "config.h"

#define CONFIG_INI_BYTES_MAX (4 * 1024 * 1024)

/* Adds what the text says to c. Every problem is fatal and reported with file name and line. Routes are not
 * joined with their servers yet (config_routes_resolve). A line may have any length as long as it can be
 * split at commas or white space; an indented line continues a list. */
void config_ini_parse(struct config *c, struct slice text, const char *file_name,
                      struct config_report *report);

#endif
