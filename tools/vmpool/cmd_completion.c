// vmpool completion: scripts for bash and zsh, and the words that they offer.
//
// The scripts ask the program itself, so they never fall behind it: `vmpool completion words N WORD...` prints what
// word N may become, one a line; nothing where it is a file.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/models/shapes.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/help_text.h"

static const char bash_script[] =
    "# vmpool completion bash: put this file into /etc/bash_completion.d, or\n"
    "#   source <(vmpool completion bash)\n"
    "_vmpool() {\n"
    "  local IFS=$'\\n'\n"
    "  COMPREPLY=($(\"${COMP_WORDS[0]}\" completion words \"$((COMP_CWORD - 1))\" \"${COMP_WORDS[@]:1}\" "
    "2>/dev/null))\n"
    "  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi\n"
    "}\n"
    "complete -o default -F _vmpool vmpool\n";

static const char zsh_script[] =
    "#compdef vmpool\n"
    "# vmpool completion zsh: put this file as _vmpool into a folder of $fpath, or\n"
    "#   source <(vmpool completion zsh)\n"
    "_vmpool() {\n"
    "  local -a all open closed\n"
    "  all=(\"${(@f)$($words[1] completion words $((CURRENT - 2)) \"${(@)words[2,-1]}\" 2>/dev/null)}\")\n"
    "  open=(${(M)all:#*=}) closed=(${all:#*=})\n"
    "  if (( ! ${#open} && ! ${#closed} )); then _files; return; fi\n"
    "  (( ${#open} )) && compadd -S '' -- $open\n"
    "  (( ${#closed} )) && compadd -- $closed\n"
    "}\n"
    "if [[ $funcstack[1] == _vmpool ]]; then _vmpool \"$@\"; else compdef _vmpool vmpool; fi\n";

static const char doc[] =
    "Prints a script that completes vmpool's commands, options and values.\v"
    "Examples:\n"
    "  source <(vmpool completion bash)\n"
    "  vmpool completion bash > /etc/bash_completion.d/vmpool\n"
    "  vmpool completion zsh > \"${fpath[1]}/_vmpool\"";

typedef struct arguments {
  const char *shell;
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case ARGP_KEY_ARG:
      if (a->shell != NULL) return cmd_bad(&a->error, "one shell at a time; '%s' is a second one", text);
      a->shell = text;
      return 0;
    case ARGP_KEY_END:
      if (a->shell == NULL) return cmd_bad(&a->error, "a shell is missing: bash or zsh");
      if (strcmp(a->shell, "bash") == 0 || strcmp(a->shell, "zsh") == 0) return 0;
      return cmd_bad(&a->error, "'%s' is neither bash nor zsh", a->shell);
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {NULL, parse, "bash|zsh", doc, NULL, NULL, NULL};

// ---- words ----

static void offer(const char *prefix, const char *before, const char *word, size_t length, const char *after) {
  if (strncmp(word, prefix, strlen(prefix)) == 0 || strlen(prefix) == 0) {
    if (strlen(prefix) <= length) printf("%s%.*s%s\n", before, (int)length, word, after);
  }
}

// Values stand in the option's name for its argument: "auto|never|always"; other names are words in capitals.
static void offer_values(const char *option, const char *values, const char *prefix, const char *before) {
  if (strcmp(option, "--model") == 0) {
    for (size_t i = 0; i < model_num_shapes; i++) {
      offer(prefix, before, model_shapes[i].name, strlen(model_shapes[i].name), "");
    }
    return;
  }
  if (strcmp(option, "--preset") == 0) values = "mixed|tight|training|inference|classic|blocks|slab|mid|buddy";
  if (strchr(values, '|') == NULL) return;
  while (*values != '\0') {
    const size_t length = strcspn(values, "|");
    // what is in capitals stands for something else: N, FILE
    if (values[0] < 'A' || values[0] > 'Z') offer(prefix, before, values, length, "");
    values += length + (values[length] == '|');
  }
}

// each_option calls `act` with the name and the argument's name of every long option of a help text.
static void each_option(char *help, void (*act)(void *context, const char *name, const char *values), void *context) {
  char *rest = help, *line;
  help_option o;
  while ((line = help_line(&rest)) != NULL) {
    if (!help_split_option(line, &o)) continue;
    char *name = strstr(o.head, "--");
    if (name == NULL) continue;
    char *equals = strchr(name, '=');
    if (equals != NULL) *equals = '\0';
    act(context, name, equals != NULL ? equals + 1 : NULL);
  }
}

typedef struct wanted {
  const char *prefix, *option, *before;
} wanted;

static void offer_option(void *context, const char *name, const char *values) {
  const wanted *w = context;
  offer(w->prefix, "", name, strlen(name), values != NULL ? "=" : "");
}

static void offer_option_values(void *context, const char *name, const char *values) {
  const wanted *w = context;
  if (values != NULL && strcmp(name, w->option) == 0) offer_values(name, values, w->prefix, w->before);
}

static void offer_commands(const char *prefix) {
  for (size_t i = 0; i < command_count; i++) {
    offer(prefix, "", command_list[i].name, strlen(command_list[i].name), "");
  }
  offer(prefix, "", "help", 4, "");
}

// split_value: the word is "--option=prefix". bash makes three words of it ("--option", "=", "prefix"), of which the
// last one alone is replaced.
static bool split_value(const char *const *words, size_t at, char option[64], wanted *out) {
  const char *equals = strchr(words[at], '=');
  const char *name = NULL;
  out->before = "";
  if (strncmp(words[at], "--", 2) == 0 && equals != NULL) {
    snprintf(option, 64, "%.*s", (int)(equals - words[at]), words[at]);
    out->prefix = equals + 1;
    static char before[66];
    snprintf(before, sizeof(before), "%s=", option);
    out->before = before;
    out->option = option;
    return true;
  }
  if (strcmp(words[at], "=") == 0 && at > 0) {
    name = words[at - 1];
    out->prefix = "";
  } else if (at > 1 && strcmp(words[at - 1], "=") == 0) {
    name = words[at - 2];
    out->prefix = words[at];
  } else if (at > 0 && strncmp(words[at - 1], "--", 2) == 0 && words[at][0] != '-') {
    name = words[at - 1];  // "--option value"
    out->prefix = words[at];
  }
  if (name == NULL || strncmp(name, "--", 2) != 0) return false;
  snprintf(option, 64, "%s", name);
  out->option = option;
  return true;
}

static void offer_words(const char *const *words, size_t count, size_t at) {
  static const char *const kinds[] = {"train", "serve"};
  char option[64];
  wanted w = {.prefix = words[at]};
  if (at == 0) {
    offer_commands(words[0]);
    return;
  }
  if (strcmp(words[0], "help") == 0 || strcmp(words[0], "man") == 0) {
    if (words[at][0] != '-') offer_commands(words[at]);
  }
  const bool generate = strcmp(words[0], "generate") == 0;
  if (generate && at == 1) {
    for (size_t i = 0; i < 2; i++) offer(words[at], "", kinds[i], strlen(kinds[i]), "");
  }
  char *help = help_capture(words, generate && count > 1 && at > 1 ? 2 : 1);
  if (help == NULL) return;
  if (split_value(words, at, option, &w)) {
    each_option(help, offer_option_values, &w);
  } else if (words[at][0] == '-') {
    each_option(help, offer_option, &w);
  }
  free(help);
}

// words: N WORD...
static int print_words(int argc, char **argv) {
  const long at = strtol(argv[0], NULL, 10);
  if (at < 0 || at > argc - 1) return EXIT_USAGE;
  const char **words = calloc((size_t)argc + 1, sizeof(*words));
  if (words == NULL) return EXIT_USAGE;
  for (int i = 1; i < argc; i++) words[i - 1] = argv[i];
  if (at == argc - 1) words[at] = "";  // a word that has not been begun
  offer_words(words, (size_t)at + 1, (size_t)at);
  free(words);
  return EXIT_GOOD;
}

int cmd_completion(int argc, char **argv) {
  arguments a = {0};
  if (argc >= 3 && strcmp(argv[1], "words") == 0) return print_words(argc - 2, argv + 2);
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  fputs(strcmp(a.shell, "bash") == 0 ? bash_script : zsh_script, stdout);
  return EXIT_GOOD;
}
