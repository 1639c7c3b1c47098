// help_text.h: what a command's --help says, as text, and its parts: the one source of manual pages and of completion.
#ifndef VMPOOL_TOOLS_VMPOOL_HELP_TEXT_H_
#define VMPOOL_TOOLS_VMPOOL_HELP_TEXT_H_

#include <stdbool.h>
#include <stddef.h>

// help_capture returns what `vmpool WORDS... --help` prints, without line breaks inside paragraphs; to be freed. NULL
// where no process can be started, host memory runs out, or the words are no command.
char *help_capture(const char *const *words, size_t num_words);

// help_line takes the next line of a text (its end becomes '\0') and moves *at behind it; NULL at the end.
char *help_line(char **at);

// help_option splits an option's line "  -o, --output=FILE   What it does" in place. False where the line is none.
typedef struct help_option {
  char *head;  // "-o, --output=FILE"
  char *text;  // "What it does", or ""
} help_option;
bool help_split_option(char *line, help_option *out);

#endif  // VMPOOL_TOOLS_VMPOOL_HELP_TEXT_H_
