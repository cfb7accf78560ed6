/* Bus errors: a mapped file was truncated under the process, or its disk cannot be read.
 *
 * The access cannot be undone: a slice of the map would be read again. So the process names the file and exits; the
 * next start recovers the log as after a crash. Only async-signal-safe functions are used here. */
#include "base/bus_error.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define BUS_ERROR_STATUS 74 /* EX_IOERR of sysexits.h */

static void write_error(const char *text, size_t size) {
    while (size > 0) {
        ssize_t written = write(STDERR_FILENO, text, size);
        if (written <= 0) return;
        text += written;
        size -= (size_t)written;
    }
}

#define WRITE_ERROR(text) write_error(text, sizeof(text) - 1)

/* Write the path of the file that is mapped at an address: the line of /proc/self/maps whose range holds it. */
static void write_mapped_path(uintptr_t address) {
    static char line[4352]; /* a path of 4,096 bytes and the numbers before it */
    char chunk[4096];
    size_t used = 0;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0) return;
    for (ssize_t count; (count = read(maps, chunk, sizeof chunk)) > 0;)
        for (ssize_t n = 0; n < count; n++) {
            if (chunk[n] != '\n') {
                if (used < sizeof line) line[used++] = chunk[n];
                continue;
            }
            uintptr_t ends[2] = {0, 0};
            size_t at = 0;
            for (int end = 0; end < 2; end++, at++)
                for (; at < used && line[at] != '-' && line[at] != ' '; at++) {
                    char digit = line[at];
                    ends[end] = ends[end] * 16 + (uintptr_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
                }
            if (ends[0] <= address && address < ends[1]) {
                while (at < used && line[at] != '/') at++;
                write_error(line + at, used - at);
                close(maps);
                return;
            }
            used = 0;
        }
    close(maps);
}

static void on_bus_error(int Py_UNUSED(number), siginfo_t *info, void *Py_UNUSED(context)) {
    WRITE_ERROR("orbitmq: bus error: a mapped file was truncated or cannot be read: ");
    write_mapped_path((uintptr_t)info->si_addr);
    WRITE_ERROR("; restore it or check the disk, then start again\n");
    _exit(BUS_ERROR_STATUS);
}

static PyObject *guard_maps(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, NULL) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
