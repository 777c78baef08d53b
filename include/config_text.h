/* config_text: what config.h promises to print: help, effective values, sample file, options page. */
#ifndef CONFIG_TEXT_H
#define CONFIG_TEXT_H

#include "config.h"

/* Each appends to out; false above its maximum. */
MUST_CHECK bool config_text_help(struct buf *out);
MUST_CHECK bool config_text_print(const struct config *c, struct buf *out);
MUST_CHECK bool config_text_example(struct buf *out);
MUST_CHECK bool config_text_options_doc(struct buf *out);

#endif
