// page.h: the one HTML file that vmpool html writes: the viewer's page, with data put into it.
//
//     template up to its mark | <script type="application/octet-stream" ...>base64 of raw deflate</script> ... | the
//     rest
//
// Owns: where data go, and that nothing in them can end the block that they stand in. Does not own: what the data are
// (cmd_html.c, page_log.h). The page's content security policy allows its own script and style by their hashes, and
// nothing else; a block of data is neither run nor fetched.
#ifndef VMPOOL_TOOLS_VMPOOL_PAGE_H_
#define VMPOOL_TOOLS_VMPOOL_PAGE_H_

#include <stdio.h>

#include "tools/common/error.h"

// page_begin writes the template up to where data go, page_end the rest. page_data writes `bytes` bytes under an id;
// `name` is shown to the person (the file's name), whatever characters it has. False when host memory runs out. Whether
// writing worked is the stream's to say (ferror).
void page_begin(FILE *out);
bool page_data(FILE *out, const char *id, const char *name, const void *data, size_t bytes, tool_error *error);
void page_end(FILE *out);

#endif  // VMPOOL_TOOLS_VMPOOL_PAGE_H_
