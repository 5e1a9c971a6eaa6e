/* Lies to a program about the wall clock: by as many seconds as the file says that WEIRLAB_CLOCK names. The monotonic clock goes
 * on as it is. Nothing here allocates, because an allocator may ask for the time before it is ready. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static char path[PATH_MAX];

/* Before the program runs, which may clear its environment, as nginx does, or write its title over it. */
__attribute__((constructor)) static void keep_path(void) {
    const char *given = getenv("WEIRLAB_CLOCK");
    if (given && strlen(given) < sizeof path) strcpy(path, given);
}

static long away(void) {
    char text[32] = {0};
    int kept = errno;
    int file = path[0] ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
        close(file);
    }
    errno = kept;
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += away();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed) now->tv_sec += away();
    return failed;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
