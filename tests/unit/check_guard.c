/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory whose pages were taken away: in a guarded range an access goes on and the range is marked,
 * elsewhere it ends the process. A file that was cut short stands for a hole in huge pages.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/guard.h"

#define PAGE  4096u
#define PAGES 8u

/* Eight pages of a file with sevens in them, of which it has kept two. */
static unsigned char *cut_file(void)
{
	int fd = memfd_create("guard", MFD_CLOEXEC);
	unsigned char *base;

	ck_assert_int_eq(ftruncate(fd, PAGES * PAGE), 0);
	base = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(base, MAP_FAILED);
	memset(base, 7, PAGES * PAGE);
	ck_assert_int_eq(ftruncate(fd, 2 * PAGE), 0);
	close(fd);
	return base;
}

static void *copy_all(void *arg)
{
	unsigned char *base = arg, copy[PAGES * PAGE];

	/* Across the border, in one call of a library; then it is written, too. */
	memcpy(copy, base, sizeof(copy));
	for (unsigned i = 0; i < sizeof(copy); i++)
		if (copy[i] != (i < 2 * PAGE ? 7 : 0))
			return "bytes differ";
	memset(base, 9, sizeof(copy));
	return base[sizeof(copy) - 1] == 9 ? NULL : "what is written does not stay";
}

START_TEST(an_access_to_what_is_gone_goes_on_and_is_known)
{
	_Atomic uint32_t damaged = 0, other = 0;
	unsigned char *base = cut_file(), *whole = cut_file();
	pthread_t thread;
	sigset_t was;
	void *wrong;

	guard_add(whole, 2 * PAGE, PAGE, &other);
	guard_add(base, PAGES * PAGE, PAGE, &damaged);
	ck_assert_uint_eq(base[2 * PAGE - 1], 7);
	ck_assert_uint_eq(damaged, 0);
	/* As lanes are started. */
	guard_block_signals(&was);
	ck_assert_int_eq(pthread_create(&thread, NULL, copy_all, base), 0);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &was, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &wrong), 0);
	ck_assert_msg(wrong == NULL, "%s", (const char *)wrong);
	ck_assert_uint_eq(damaged, 1);
	ck_assert_uint_eq(whole[0], 7);
	ck_assert_uint_eq(other, 0);
	guard_remove(base);
	guard_remove(whole);
	munmap(base, PAGES * PAGE);
	munmap(whole, PAGES * PAGE);
}
END_TEST

/* The signal that ends a child which does this. */
static int end_of(void (*body)(unsigned char *base), unsigned char *base)
{
	const struct rlimit none = { 0, 0 };
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		body(base);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_outside(unsigned char *base)
{
	(void)*(volatile unsigned char *)(base + 4 * PAGE);
}

static void read_after_removal(unsigned char *base)
{
	guard_remove(base);
	(void)*(volatile unsigned char *)(base + 3 * PAGE);
}

static void read_inside(unsigned char *base)
{
	(void)*(volatile unsigned char *)(base + 3 * PAGE);
}

static void send_one(unsigned char *base)
{
	kill(getpid(), SIGBUS);
}

START_TEST(elsewhere_the_process_ends_as_it_would)
{
	_Atomic uint32_t damaged = 0;
	unsigned char *base = cut_file();

	guard_add(base, 4 * PAGE, PAGE, &damaged);
	ck_assert_int_eq(end_of(read_inside, base), 0);
	ck_assert_int_eq(end_of(read_outside, base), SIGBUS);
	ck_assert_int_eq(end_of(read_after_removal, base), SIGBUS);
	ck_assert_int_eq(end_of(send_one, base), SIGBUS);
	guard_remove(base);
	munmap(base, PAGES * PAGE);
}
END_TEST

UNIT_MAIN("guard", an_access_to_what_is_gone_goes_on_and_is_known,
	  elsewhere_the_process_ends_as_it_would)
