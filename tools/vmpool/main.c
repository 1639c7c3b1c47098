// vmpool: the tool. Chooses the subcommand; everything else is in cmd_*.c.
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "pool/vmpool.h"
#include "tools/models/shapes.h"
#include "tools/vmpool/commands.h"

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
const char *argp_program_version =
    "vmpool " TEXT(VMP_VERSION_MAJOR) "." TEXT(VMP_VERSION_MINOR) "." TEXT(VMP_VERSION_PATCH);

const command_row command_list[] = {
    {"demo", "vmpool demo", cmd_demo, "a GPT-2 training step through a pool, on a GPU or without one"},
    {"replay", "vmpool replay", cmd_replay, "a recorded or generated trace through a pool, and what it cost"},
    {"record", "vmpool record", cmd_record, "a command with every event of its pools recorded"},
    {"bench", "vmpool bench", cmd_bench, "what the pool costs: time, memory, driver calls"},
    {"generate", "vmpool generate", cmd_generate, "traces of training steps and of serving, from model shapes"},
    {"map", "vmpool map", cmd_map, "a pool's snapshot as text: where the memory is"},
    {"stats", "vmpool stats", cmd_stats, "a snapshot's numbers: sizes, counters, streams, options"},
    {"hist", "vmpool hist", cmd_hist, "sizes of blocks, and of the pieces of free memory"},
    {"diff", "vmpool diff", cmd_diff, "what differs between two snapshots"},
    {"why", "vmpool why", cmd_why, "what is known of an address: its owner now and before"},
    {"oom", "vmpool oom", cmd_oom, "why an allocation failed, and what would help"},
    {"check", "vmpool check", cmd_check, "contradictions within a snapshot or a log"},
    {"ps", "vmpool ps", cmd_ps, "the pools of running processes"},
    {"top", "vmpool top", cmd_top, "pools of running processes, live"},
    {"html", "vmpool html", cmd_html, "a pool's snapshot as one page for a browser, without a network"},
    {"advise", "vmpool advise", cmd_advise, "options for a program, from a trace or a log of it"},
    {"export", "vmpool export", cmd_export, "a pool's snapshot for other programs: memory_viz, Perfetto, SVG, CSV, ..."},
    {"probe", "vmpool probe", cmd_probe, "what a driver can do, what its calls cost, and what its manual leaves open"},
    {"man", "vmpool man", cmd_man, "manual pages of vmpool and its commands"},
    {"completion", "vmpool completion", cmd_completion, "completion for bash and zsh"},
};
const size_t command_count = sizeof(command_list) / sizeof(command_list[0]);

static const char formats_text[] =
    "vmpool replay recognises a trace by its content:\n"
    "\n"
    "  plain         alloc ID BYTES STREAM [T_US] and free ID [STREAM] [T_US]; # comments\n"
    "  interval      id,lower,upper,size (minimalloc, idealloc); live from lower up to upper\n"
    "  interval log  lower upper size, without header (allocatorSim)\n"
    "  signed        t_us,thread,bytes (PyTorch profiles); negative bytes free a block of\n"
    "                that size: the newest, or the oldest with --pairing fifo\n"
    "  timeline      t_ns,action,bytes,category (torch.profiler's memory timeline)\n"
    "  hta           t_us,thread,op,id,bytes,rel_addr,total_allocated\n"
    "  rmm           Thread,Time,Action,Pointer,Size,Stream (RMM's log)\n"
    "  pytorch       a memory snapshot exported to JSON\n"
    "  vmpool log    an event log of a pool (vmpool record)\n"
    "\n"
    "and files of requests, with --kv contiguous|paged and --model NAME:\n"
    "\n"
    "  azure         TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "  mooncake      JSON lines with timestamp, input_length, output_length\n"
    "  vidur         num_prefill_tokens,num_decode_tokens,... (lengths only: requests\n"
    "                arrive evenly, --request-rate a second)\n";

static void print_overview(FILE *out) {
  fputs("Usage: vmpool COMMAND [OPTION...]\nA GPU memory pool on CUDA virtual memory, and what memory does in it.\n\n",
        out);
  for (size_t i = 0; i < command_count; i++) {
    fprintf(out, "  %-10s %s\n", command_list[i].name, command_list[i].summary);
  }
  fputs(
      "  help       this text; help COMMAND, help formats, help models\n\nTry first:\n"
      "  vmpool demo\n"
      "  vmpool generate train --model gpt2-xl --batch 4 | vmpool replay -\n",
      out);
}

static int fail(const char *format, const char *what) {
  tool_error error;
  tool_fail(&error, format, what);
  return cmd_fail("vmpool", &error);
}

static int run_command(const char *name, int argc, char **argv) {
  for (size_t i = 0; i < command_count; i++) {
    if (strcmp(command_list[i].name, name) != 0) continue;
    char full_name[32];
    argv[0] = strcpy(full_name, command_list[i].full_name);
    return command_list[i].run(argc, argv);
  }
  return fail("'%s' is no command; vmpool help lists them", name);
}

static int help(const char *topic) {
  if (topic == NULL) {
    print_overview(stdout);
  } else if (strcmp(topic, "formats") == 0) {
    fputs(formats_text, stdout);
  } else if (strcmp(topic, "models") == 0) {
    model_list_names(stdout);
    fputc('\n', stdout);
  } else {
    char option[] = "--help";
    char *argv[] = {option, option, NULL};
    return run_command(topic, 2, argv);
  }
  return EXIT_GOOD;
}

int cmd_run(int argc, char **argv) {
  if (argc < 2) {
    tool_error error;
    tool_fail(&error, "a command is missing; vmpool help lists them");
    return cmd_fail("vmpool", &error);
  }
  if (strcmp(argv[1], "help") == 0) return help(argc > 2 ? argv[2] : NULL);
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "-?") == 0) return help(NULL);
  if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
    puts(argp_program_version);
    return EXIT_GOOD;
  }
  if (argv[1][0] == '-') return fail("'%s' is no option of vmpool itself; vmpool help shows how it is called", argv[1]);
  return run_command(argv[1], argc - 1, argv + 1);
}

int main(int argc, char **argv) {
  setlocale(LC_CTYPE, "");
  argp_err_exit_status = EXIT_USAGE;
  const int status = cmd_run(argc, argv);
  if (fflush(stdout) != 0 || ferror(stdout) != 0) {
    if (status == EXIT_GOOD) return fail("standard output could not be written%s", "");
  }
  return status;
}
