/* Loaded into a leash that runs under valgrind, where /proc/self/exe is valgrind: leash executes itself by its real path,
   and the new process runs without valgrind. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int execvp(const char *file, char *const argv[])
{
    return execvpe(strcmp(file, "/proc/self/exe") ? file : getenv("LEASH_PROGRAM"), argv, environ);
}
