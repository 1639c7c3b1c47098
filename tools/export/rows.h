// rows.h: rows of a snapshot's tables, cell by cell. A cell that is missing or of another type is 0 or "".
#ifndef VMPOOL_TOOLS_EXPORT_ROWS_H_
#define VMPOOL_TOOLS_EXPORT_ROWS_H_

#include <jansson.h>
#include <stdint.h>

uint64_t row_size(const json_t *row, size_t cell);
const char *row_text(const json_t *row, size_t cell);

// row_stream: the index of a stream, -1 where it isn't known.
int64_t row_stream(const json_t *row, size_t cell);

// document_text: a member's member as text ("pool", "name"), "" where there is none.
const char *document_text(const json_t *document, const char *object, const char *field);
uint64_t document_size(const json_t *document, const char *object, const char *field);

// tag_text: the name of a tag, "" for 0 and what isn't there.
const char *tag_text(const json_t *document, uint64_t tag);

// block_label: what a block's row is called: its tag, else its own name, else "".
const char *block_label(const json_t *document, const json_t *row);

#endif  // VMPOOL_TOOLS_EXPORT_ROWS_H_
