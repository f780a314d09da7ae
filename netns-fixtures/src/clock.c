/* A wall clock for one process: the system's, and as many seconds ahead as the file says that WALL_CLOCK names. All other
   clocks are the kernel's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    const char *path = clock == CLOCK_REALTIME ? getenv("WALL_CLOCK") : NULL;
    FILE *file = path && !failed ? fopen(path, "r") : NULL;
    long ahead;
    if (!file)
        return failed;
    if (fscanf(file, "%ld", &ahead) == 1)
        now->tv_sec += ahead;
    fclose(file);
    return 0;
}
