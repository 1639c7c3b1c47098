// commands.h: the subcommands of `vmpool`, and what they share.
//
// Every command takes its own arguments (argv[0] is "vmpool NAME") and returns the exit status:
//   EXIT_GOOD 0   done
//   EXIT_BAD 1    it ran, but something failed: an allocation, a check, a touch
//   EXIT_USAGE 2  the arguments or the input can't be used; one sentence on standard error says why
#ifndef VMPOOL_TOOLS_VMPOOL_COMMANDS_H_
#define VMPOOL_TOOLS_VMPOOL_COMMANDS_H_

#include <argp.h>
#include <stddef.h>

#include "tools/common/error.h"

enum { EXIT_GOOD = 0, EXIT_BAD = 1, EXIT_USAGE = 2 };

int cmd_replay(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_map(int argc, char **argv);
// command_list: every command, in the order of vmpool help. cmd_run chooses one by argv[1], as main does.
typedef struct command_row {
  const char *name, *full_name;
  int (*run)(int argc, char **argv);
  const char *summary;
} command_row;
extern const command_row command_list[];
extern const size_t command_count;
int cmd_run(int argc, char **argv);

int cmd_completion(int argc, char **argv);
int cmd_man(int argc, char **argv);
int cmd_advise(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_html(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_probe(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_hist(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_why(int argc, char **argv);
int cmd_oom(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_top(int argc, char **argv);

// cmd_parse reads arguments with argp. A mistake that argp itself finds (an unknown option, a missing value) and one
// that the parser put into *error are both reported as one line; false then.
bool cmd_parse(const struct argp *argp, int argc, char **argv, void *input, tool_error *error);

// cmd_fail prints "NAME: sentence" and returns EXIT_USAGE.
int cmd_fail(const char *name, const tool_error *error);

// What parsers of options share. Each sets *error, naming the option, and returns EINVAL, or returns 0.
error_t cmd_number(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *out, tool_error *error);
error_t cmd_range(const char *option, const char *text, uint64_t *out_low, uint64_t *out_high, tool_error *error);
error_t cmd_size(const char *option, const char *text, uint64_t *out, tool_error *error);
error_t cmd_real(const char *option, const char *text, double max, double *out, tool_error *error);
error_t cmd_bad(tool_error *error, const char *format, ...) VMP_PRINTF(2, 3);

#endif  // VMPOOL_TOOLS_VMPOOL_COMMANDS_H_
