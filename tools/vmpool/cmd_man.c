// vmpool man: manual pages, made of what --help says.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/common/output.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/help_text.h"

enum { OPTION_ALL = 256 };

static const struct argp_option option_list[] = {
    {"all", OPTION_ALL, "FOLDER", 0, "Write every page into FOLDER: vmpool.1, vmpool-map.1 and so on", 0},
    {0},
};

static const char doc[] =
    "Writes the manual page of vmpool, or of one of its commands.\v"
    "Examples:\n"
    "  vmpool man | man -l -\n"
    "  vmpool man export | man -l -\n"
    "  vmpool man generate train | man -l -\n"
    "  vmpool man --all /usr/local/share/man/man1";

// page: a command, or one of two words.
typedef struct page {
  const char *words[2];
  size_t num_words;
} page;
static const page two_words[] = {{{"generate", "train"}, 2}, {{"generate", "serve"}, 2}};

typedef struct arguments {
  page page;
  const char *folder;
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_ALL: a->folder = text; return 0;
    case ARGP_KEY_ARG:
      if (a->page.num_words == 2) return cmd_bad(&a->error, "one command at a time; '%s' is a word too many", text);
      a->page.words[a->page.num_words++] = text;
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {option_list, parse, "[COMMAND]", doc, NULL, NULL, NULL};

// ---- troff ----

static void put_text(FILE *out, const char *text) {
  if (text[0] == '.' || text[0] == '\'') fputs("\\&", out);
  for (; *text != '\0'; text++) {
    if (*text == '\\') {
      fputs("\\e", out);
    } else if (*text == '-') {
      fputs("\\-", out);
    } else {
      fputc(*text, out);
    }
  }
}

static void put_line(FILE *out, const char *text) {
  put_text(out, text);
  fputc('\n', out);
}

static void put_head(FILE *out, const char *title, const char *name, const char *summary) {
  fputs(".TH \"", out);
  for (; *title != '\0'; title++) fputc(*title >= 'a' && *title <= 'z' ? *title - 'a' + 'A' : *title, out);
  fprintf(out, "\" 1 \"\" \"%s\" \"vmpool\"\n.SH NAME\n%s \\- ", argp_program_version, name);
  put_line(out, summary);
}

// put_block writes lines that keep their shape; *line is the first of them, and the one behind them in the end.
static void put_block(FILE *out, char **line, char **rest) {
  fputs(".PP\n.nf\n.RS 2\n", out);
  while (*line != NULL && (*line)[0] == ' ') {
    put_line(out, *line + strspn(*line, " "));
    *line = help_line(rest);
  }
  fputs(".RE\n.fi\n", out);
}

static void put_option(FILE *out, const help_option *o) {
  fputs(".TP\n.B ", out);
  put_line(out, o->head);
  if (o->text[0] != '\0') put_line(out, o->text);
}

// What follows the options: examples, then notes.
static void put_tail(FILE *out, char *line, char **rest) {
  bool notes = false;
  while (line != NULL) {
    if (line[0] == '\0' || strncmp(line, "Mandatory or optional", 21) == 0) {
      line = help_line(rest);
    } else if (strcmp(line, "Examples:") == 0) {
      fputs(".SH EXAMPLES\n", out);
      notes = false;
      line = help_line(rest);
    } else if (line[0] == ' ') {
      put_block(out, &line, rest);
    } else {
      fputs(notes ? ".PP\n" : ".SH NOTES\n", out);
      notes = true;
      put_line(out, line);
      line = help_line(rest);
    }
  }
}

// A line of the list of options: a group's title, an option, or the text of an option whose name is long.
typedef enum line_kind { LINE_OTHER = 0, LINE_EMPTY, LINE_GROUP, LINE_OPTION, LINE_TEXT } line_kind;

static line_kind kind_of(const char *line) {
  const size_t indent = strspn(line, " ");
  if (line[indent] == '\0') return LINE_EMPTY;
  if (indent == 0) return LINE_OTHER;
  if (line[indent] == '-') return LINE_OPTION;
  return indent == 1 ? LINE_GROUP : indent >= 20 ? LINE_TEXT : LINE_OTHER;
}

// put_options writes the list of options, and returns the first line behind it.
static char *put_options(FILE *out, char *line, char **rest) {
  bool begun = false;
  help_option o;
  for (; line != NULL; line = help_line(rest)) {
    const line_kind kind = kind_of(line);
    if (kind == LINE_OTHER) return line;
    if (kind == LINE_EMPTY) continue;
    if (!begun) fputs(".SH OPTIONS\n", out);
    begun = true;
    if (kind == LINE_GROUP) fprintf(out, ".SS \"%s\"\n", line + 1);
    if (kind == LINE_OPTION && help_split_option(line, &o)) put_option(out, &o);
    if (kind == LINE_TEXT) put_line(out, line + strspn(line, " "));
  }
  return NULL;
}

// put_page turns a help text into a page: usage, description, options, the rest.
static void put_page(FILE *out, const char *title, const char *summary, char *help) {
  char *rest = help, *line = help_line(&rest);
  put_head(out, title, title, summary);
  fputs(".SH SYNOPSIS\n.B ", out);
  put_line(out, line != NULL && strncmp(line, "Usage: ", 7) == 0 ? line + 7 : "vmpool");
  fputs(".SH DESCRIPTION\n", out);
  for (line = help_line(&rest); line != NULL && line[0] != '\0'; line = help_line(&rest)) put_line(out, line);
  line = put_options(out, line, &rest);
  put_tail(out, line, &rest);
  fputs(".SH SEE ALSO\n.BR vmpool (1)\n", out);
}

static void put_overview(FILE *out) {
  put_head(out, "vmpool", "vmpool", "a GPU memory pool on CUDA virtual memory, and what memory does in it");
  fputs(
      ".SH SYNOPSIS\n.B vmpool\n.I COMMAND\n[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n"
      "Looks at pools of the vmpool library, measures them, and finds options for them. A snapshot is a file that a\n"
      "pool writes of its state; a log is a file of its events.\n.SH COMMANDS\n",
      out);
  for (size_t i = 0; i < command_count; i++) {
    fprintf(out, ".TP\n.BR vmpool\\-%s (1)\n", command_list[i].name);
    put_line(out, command_list[i].summary);
  }
  fputs(
      ".SH ENVIRONMENT\n.TP\n.B VMP_CONF\nOptions of every pool that is created, as key:value,...: "
      "log:run.vmplog, snapshot_on:oom, live:1.\n.TP\n.B NO_COLOR\nWithout colours where it is set.\n.TP\n.B COLUMNS\n"
      "The width of what is drawn.\n.SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\n"
      "It ran, but something failed: an allocation, a check, a touch.\n.TP\n.B 2\n"
      "The arguments or the input can't be used; one sentence on standard error says why.\n.SH EXAMPLES\n.nf\n.RS 2\n"
      "vmpool demo\nvmpool record \\-\\- ./train\nvmpool map pool.json\nvmpool html pool.json run.vmplog \\-o "
      "pool.html\n"
      "vmpool advise run.vmplog\n.RE\n.fi\n.SH SEE ALSO\n",
      out);
  for (size_t i = 0; i < command_count; i++) {
    fprintf(out, ".BR vmpool\\-%s (1)%s\n", command_list[i].name, i + 1 < command_count ? "," : "");
  }
}

// ---- the command ----

static const char *page_title(const page *p, char title[64]) {
  snprintf(title, 64, "vmpool%s%.20s%s%.20s", p->num_words > 0 ? "-" : "", p->num_words > 0 ? p->words[0] : "",
           p->num_words > 1 ? "-" : "", p->num_words > 1 ? p->words[1] : "");
  return title;
}

static bool put_command(FILE *out, const page *p, tool_error *error) {
  char title[64];
  for (size_t i = 0; i < command_count; i++) {
    if (strcmp(command_list[i].name, p->words[0]) != 0) continue;
    char *help = help_capture(p->words, p->num_words);
    if (help == NULL) return tool_fail(error, "the help of '%s' could not be read", page_title(p, title));
    put_page(out, page_title(p, title), command_list[i].summary, help);
    free(help);
    return true;
  }
  return tool_fail(error, "'%s' is no command; vmpool help lists them", p->words[0]);
}

static bool write_file(const char *folder, const page *p, tool_error *error) {
  char path[PATH_MAX], title[64];
  output out;
  const int length = snprintf(path, sizeof(path), "%s/%s.1", folder, page_title(p, title));
  if (length < 0 || (size_t)length >= sizeof(path)) return tool_fail(error, "the folder's name is too long");
  if (!output_open(&out, path, error)) return false;
  if (p->num_words == 0) {
    put_overview(out.file);
  } else if (!put_command(out.file, p, error)) {
    output_discard(&out);
    return false;
  }
  return output_finish(&out, error);
}

static bool write_all(const char *folder, tool_error *error) {
  if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
    return tool_fail(error, "%s: the folder can't be made: %s", folder, strerror(errno));
  }
  bool good = write_file(folder, &(page){.num_words = 0}, error);
  for (size_t i = 0; good && i < command_count; i++) {
    good = write_file(folder, &(page){{command_list[i].name, NULL}, 1}, error);
  }
  for (size_t i = 0; good && i < sizeof(two_words) / sizeof(two_words[0]); i++) {
    good = write_file(folder, &two_words[i], error);
  }
  return good;
}

int cmd_man(int argc, char **argv) {
  arguments a = {0};
  bool good = true;
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  if (a.folder != NULL) {
    good = write_all(a.folder, &a.error);
  } else if (a.page.num_words > 0) {
    good = put_command(stdout, &a.page, &a.error);
  } else {
    put_overview(stdout);
  }
  return good ? EXIT_GOOD : cmd_fail(argv[0], &a.error);
}
