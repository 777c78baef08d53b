/* config_option: the rows of config.def: their names in the three places, and one value from text and back.
 */
#ifndef CONFIG_OPTION_H
#define CONFIG_OPTION_H

#include "config.h"

#define CONFIG_OPTION_NAME_MAX 48

enum config_type {
    CONFIG_TYPE_BOOL,
    CONFIG_TYPE_INT,
    CONFIG_TYPE_BYTES,
    CONFIG_TYPE_DURATION,
    CONFIG_TYPE_NUMBER,
    CONFIG_TYPE_STRING,
    CONFIG_TYPE_ENUM,
    CONFIG_TYPE_PORT
};

/* The columns of config.def. */
struct config_option_row {
    const char *env;
    const char *initial;
    const char *choices;
    const char *help;
    const char *group; /* title of the group that starts here, or NULL */
    enum config_type type;
    size_t offset; /* of the value in struct config */
    int64_t min, max;
    bool restart;
    char key[CONFIG_OPTION_NAME_MAX];  /* in [router] of the INI file */
    char flag[CONFIG_OPTION_NAME_MAX]; /* without the two dashes */
};

const struct config_option_row *config_option_row(enum config_option o);
/* CONFIG_OPTION_COUNT: no such option. */
enum config_option config_option_by_key(struct slice key);
enum config_option config_option_by_flag(struct slice flag);

/* Parses text as the option's value. False: nothing is changed and *error, freed by the caller with mem_free,
 * says what was expected ("not a duration such as 30s or 1m30s"). The origin is left to the caller. */
MUST_CHECK bool config_option_set(struct config *c, enum config_option o, struct slice text, char **error);
/* Sets the default of every option. */
void config_option_set_defaults(struct config *c);
bool config_option_same(const struct config *a, const struct config *b, enum config_option o);
/* Value and origin. */
void config_option_copy(struct config *to, const struct config *from, enum config_option o);
void config_option_free_all(struct config *c);
MUST_CHECK bool config_option_format(const struct config *c, enum config_option o, struct buf *out);
/* "off, prefer": the words of an ENUM. */
void config_option_choices(const struct config_option_row *row, char out[CONFIG_OPTION_NAME_MAX]);

/* For slices from outside in error texts: at most 80 bytes of them. */
#define CONFIG_SHOWN(s) (int)((s).n < 80 ? (s).n : 80), (s).p

#endif
