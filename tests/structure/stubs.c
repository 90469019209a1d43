/* What base..reports must not reach, neither themselves nor through a library: the executable's
 * definitions come before those of every shared library, and fail the test when they are called.
 *
 * Nothing here includes a header: the names are given to the linker (the asm labels), and their
 * true prototypes do not matter since nobody returns from a call. */

void stubs_arm(void);
_Noreturn void stubs_fail(const char *what);

enum { SYSTEM_WRITE_ERROR = 2 };
extern long syscall(long number, ...);
extern __typeof__(sizeof(0)) strlen(const char *text);

#if defined(__x86_64__)
enum { NUMBER_WRITE = 1, NUMBER_EXIT_GROUP = 231 };
#elif defined(__i386__)
enum { NUMBER_WRITE = 4, NUMBER_EXIT_GROUP = 252 };
#else
enum { NUMBER_WRITE = 64, NUMBER_EXIT_GROUP = 94 }; /* the generic table: arm64, riscv */
#endif

/* Before main, constructors of libraries may still ask for their environment. */
static int armed;

void stubs_arm(void)
{
	armed = 1;
}

_Noreturn void stubs_fail(const char *what)
{
	syscall(NUMBER_WRITE, SYSTEM_WRITE_ERROR, what, strlen(what));
	syscall(NUMBER_WRITE, SYSTEM_WRITE_ERROR, "\n", 1L);
	for (;;)
		syscall(NUMBER_EXIT_GROUP, 1L);
}

static void *called(const char *name)
{
	if (armed)
		stubs_fail(name);
	return 0;
}

/* clang-format off */
#define FORBIDDEN(X)                                                                               \
	X(fopen) X(fopen64) X(freopen) X(fdopen) X(fclose) X(fread) X(fwrite) X(fgets) X(fgetc)    \
	X(getline) X(fputs) X(fputc) X(putc) X(puts) X(putchar) X(printf) X(fprintf) X(vprintf)    \
	X(vfprintf) X(__printf_chk) X(__fprintf_chk) X(perror) X(tmpfile) X(popen)                 \
	X(open) X(open64) X(openat) X(creat) X(read) X(write) X(pread) X(pwrite) X(close)          \
	X(lseek) X(stat) X(fstat) X(lstat) X(access) X(unlink) X(rename) X(mkdir) X(opendir)       \
	X(readdir) X(realpath) X(getcwd) X(chdir) X(ioctl) X(isatty) X(select) X(poll)             \
	X(fork) X(vfork) X(posix_spawn) X(posix_spawnp) X(execv) X(execve) X(execvp) X(system)     \
	X(waitpid) X(kill) X(getpid) X(sysconf)                                                    \
	X(pthread_create) X(thrd_create) X(sched_yield) X(usleep) X(nanosleep) X(sleep)            \
	X(time) X(clock) X(clock_gettime) X(gettimeofday) X(localtime) X(gmtime) X(strftime)       \
	X(setlocale) X(newlocale) X(uselocale) X(localeconv)                                       \
	X(getenv) X(secure_getenv) X(setenv) X(putenv)                                             \
	X(socket) X(connect) X(getaddrinfo) X(dlopen) X(dlsym) X(rand) X(random) X(srand)
/* clang-format on */

#define X(name)                                                                                    \
	void *stub_##name(void) __asm__(#name);                                                    \
	void *stub_##name(void)                                                                    \
	{                                                                                          \
		return called(#name);                                                              \
	}
FORBIDDEN(X)
#undef X
