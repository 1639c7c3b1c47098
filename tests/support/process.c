// process.c: see process.h. Output goes to unlinked temporary files, so no pipe can fill up and block either side.
#include "tests/support/process.h"

#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// Reads a whole file into a fresh string; NULL with errno on failure.
static char *read_all(FILE *file, size_t *out_bytes) {
  if (fseek(file, 0, SEEK_END) != 0) return NULL;
  long size = ftell(file);
  if (size < 0) return NULL;
  rewind(file);
  char *text = malloc((size_t)size + 1);
  if (!text) return NULL;
  *out_bytes = fread(text, 1, (size_t)size, file);
  text[*out_bytes] = '\0';
  return text;
}

static int spawn_and_wait(vtest_process *process, const char *const *argv, FILE *const files[3]) {
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) return error;
  for (int fd = 0; fd < 3 && error == 0; fd++)
    error = posix_spawn_file_actions_adddup2(&actions, fileno(files[fd]), fd);
  pid_t pid = 0;
  // posix_spawnp takes char *const[] for historical reasons; it doesn't write to the strings.
  if (error == 0) error = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return error;
  int raw = 0;
  while (waitpid(pid, &raw, 0) < 0) {
    if (errno != EINTR) return errno;
  }
  process->status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  return 0;
}

int vtest_process_run(vtest_process *process, const char *const *argv, const char *input) {
  *process = (vtest_process){0};
  FILE *files[3] = {tmpfile(), tmpfile(), tmpfile()};
  int error = 0;
  if (!files[0] || !files[1] || !files[2]) {
    error = errno;
  } else if (input && (fputs(input, files[0]) < 0 || fflush(files[0]) != 0)) {
    error = errno;
  } else {
    rewind(files[0]);
    error = spawn_and_wait(process, argv, files);
  }
  if (error == 0) {
    process->out = read_all(files[1], &process->out_bytes);
    process->err = read_all(files[2], &process->err_bytes);
    if (!process->out || !process->err) error = errno;
  }
  for (int i = 0; i < 3; i++) {
    if (files[i]) fclose(files[i]);
  }
  errno = error;
  return error == 0 ? 0 : -1;
}

void vtest_process_free(vtest_process *process) {
  free(process->out);
  free(process->err);
  *process = (vtest_process){0};
}
