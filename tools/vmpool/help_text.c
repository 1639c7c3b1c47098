#include "tools/vmpool/help_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/vmpool/byte_buffer.h"
#include "tools/vmpool/commands.h"

#define MAX_WORDS 8u
#define WORD_BYTES 64u

// The command prints its help, and ends: that is another process.
static void print_help(const char *const *words, size_t num_words, int out) {
  char program[] = "vmpool", option[] = "--help";
  char *argv[MAX_WORDS + 3] = {program};
  char copies[MAX_WORDS][WORD_BYTES];  // a word that is cut names no command
  int argc = 1;
  for (size_t i = 0; i < num_words; i++) {
    (void)snprintf(copies[i], sizeof(copies[i]), "%s", words[i]);
    argv[argc++] = copies[i];
  }
  argv[argc++] = option;
  const int nowhere = open("/dev/null", O_WRONLY);
  (void)dup2(out, STDOUT_FILENO);
  if (nowhere >= 0) (void)dup2(nowhere, STDERR_FILENO);  // a mistake is told by the status
  (void)setenv("ARGP_HELP_FMT", "rmargin=10000", 1);
  const int status = cmd_run(argc, argv);
  fflush(stdout);
  _exit(status);
}

static bool read_all(int in, byte_buffer *text) {
  char piece[4096];
  for (;;) {
    const ssize_t got = read(in, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    byte_buffer_put(text, piece, (size_t)got);
  }
}

char *help_capture(const char *const *words, size_t num_words) {
  int ends[2];
  byte_buffer text = {0};
  if (num_words > MAX_WORDS || pipe(ends) != 0) return NULL;
  fflush(NULL);
  const pid_t process = fork();
  if (process == 0) {
    (void)close(ends[0]);
    print_help(words, num_words, ends[1]);
  }
  (void)close(ends[1]);
  const bool read = process > 0 && read_all(ends[0], &text);
  (void)close(ends[0]);
  int status = 1;
  if (process > 0) (void)waitpid(process, &status, 0);
  byte_buffer_byte(&text, '\0');
  if (read && status == 0 && !text.failed) return (char *)text.bytes;
  byte_buffer_free(&text);
  return NULL;
}

char *help_line(char **at) {
  char *line = *at;
  if (*line == '\0') return NULL;
  char *end = strchr(line, '\n');
  if (end == NULL) {
    *at = line + strlen(line);
  } else {
    *end = '\0';
    *at = end + 1;
  }
  return line;
}

bool help_split_option(char *line, help_option *out) {
  char *head = line + strspn(line, " ");
  if (head - line < 2 || head[0] != '-' || (head[1] != '-' && head[2] != ',' && head[2] != ' ')) return false;
  char *gap = strstr(head, "  ");
  out->head = head;
  out->text = head + strlen(head);
  if (gap != NULL) {
    *gap = '\0';
    out->text = gap + 2 + strspn(gap + 2, " ");
  }
  return true;
}
