/* libs: makes the libraries allocate through mem.h. Left to themselves, some of them go on without the memory
 * they wanted, and some crash; so a lack of memory ends the process with one plain line wherever it is felt.
 */
#ifndef LIBS_H
#define LIBS_H

#include "util.h"

/* Before any library is used. False: OpenSSL has allocated already. */
MUST_CHECK bool libs_use_mem(void);
/* Then libcurl, which sets up OpenSSL; once. False: it cannot be used. */
MUST_CHECK bool libs_start_curl(void);

#endif
