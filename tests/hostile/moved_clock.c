/* Moves the time of day of the processes that load it, by what a file says: 64 bits of seconds.
 * Time that only goes forward, which is what they sleep and wait by, stays as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset_seconds;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("MOVED_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof *offset_seconds, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED) offset_seconds = map;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && offset_seconds) now->tv_sec += *offset_seconds;
    return result;
}
