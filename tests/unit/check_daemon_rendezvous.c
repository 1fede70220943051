/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/rendezvous.h"
#include "tests/unit/leftovers.h"

static char directory[LEFTOVERS_ROOM], path[96], lock[112];
static struct err err;

static void start(void)
{
	leftovers_folder(directory);
	snprintf(path, sizeof(path), "%s/tierd.sock", directory);
	snprintf(lock, sizeof(lock), "%s.lock", path);
}

/* Fails when a file was left behind. */
static void stop(void)
{
	ck_assert_int_eq(rmdir(directory), 0);
}

static int open_and_listen(struct rendezvous *r)
{
	int rc = rendezvous_open(path, r, &err);

	if (rc == 0 && (rc = rendezvous_listen(r, &err)) < 0)
		rendezvous_close(r);
	return rc;
}

static int file_kind(const char *at)
{
	struct stat st;

	return lstat(at, &st) == 0 ? (int)(st.st_mode & S_IFMT) : 0;
}

START_TEST(socket_and_lock_go_with_their_owner)
{
	struct rendezvous r;

	start();
	ck_assert_int_eq(open_and_listen(&r), 0);
	ck_assert_int_eq(file_kind(path), S_IFSOCK);
	ck_assert_int_eq(file_kind(lock), S_IFREG);
	rendezvous_close(&r);
	stop();
}
END_TEST

START_TEST(a_second_one_is_told_who_holds_the_lock)
{
	struct rendezvous first, second;
	char pid[16];

	start();
	ck_assert_int_eq(open_and_listen(&first), 0);
	ck_assert_int_eq(open_and_listen(&second), -EBUSY);
	snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
	ck_assert_ptr_nonnull(strstr(err.text, pid));
	ck_assert_int_eq(file_kind(path), S_IFSOCK);
	rendezvous_close(&first);
	stop();
}
END_TEST

START_TEST(paths_that_differ_only_by_name_are_the_same)
{
	struct rendezvous first, second;
	char linked[80], other[112];

	start();
	ck_assert_int_eq(open_and_listen(&first), 0);
	snprintf(other, sizeof(other), "%s/./tierd.sock", directory);
	ck_assert_int_eq(rendezvous_open(other, &second, &err), -EBUSY);
	snprintf(linked, sizeof(linked), "%s-link", directory);
	ck_assert_int_eq(symlink(directory, linked), 0);
	snprintf(other, sizeof(other), "%s/tierd.sock", linked);
	ck_assert_int_eq(rendezvous_open(other, &second, &err), -EBUSY);
	unlink(linked);
	rendezvous_close(&first);
	stop();
}
END_TEST

static void die_with_everything_open(void)
{
	struct rendezvous r;

	if (fork() == 0)
		_exit(open_and_listen(&r) == 0 ? 0 : 1);
	ck_assert_int_gt(wait(NULL), 0);
}

START_TEST(a_stale_socket_is_taken_over)
{
	struct rendezvous r;

	start();
	die_with_everything_open();
	ck_assert_int_eq(file_kind(path), S_IFSOCK);
	ck_assert_msg(open_and_listen(&r) == 0, "%s", err.text);
	rendezvous_close(&r);
	stop();
}
END_TEST

START_TEST(a_socket_that_answers_is_not_stale_though_its_lock_is_gone)
{
	struct rendezvous first, second;

	start();
	ck_assert_int_eq(open_and_listen(&first), 0);
	unlink(lock);
	ck_assert_int_eq(open_and_listen(&second), -EBUSY);
	ck_assert_int_eq(file_kind(path), S_IFSOCK);
	rendezvous_close(&first);
	stop();
}
END_TEST

START_TEST(what_is_no_socket_is_never_removed)
{
	struct rendezvous r;

	start();
	close(open(path, O_CREAT | O_RDWR, 0600));
	ck_assert_int_eq(open_and_listen(&r), -EEXIST);
	ck_assert_int_eq(file_kind(path), S_IFREG);
	unlink(path);
	mkdir(path, 0700);
	ck_assert_int_eq(open_and_listen(&r), -EEXIST);
	ck_assert_int_eq(file_kind(path), S_IFDIR);
	rmdir(path);
	ck_assert_int_eq(symlink("/etc/hosts", path), 0);
	ck_assert_int_eq(open_and_listen(&r), -EEXIST);
	ck_assert_int_eq(file_kind(path), S_IFLNK);
	unlink(path);
	stop();
}
END_TEST

START_TEST(a_lock_that_is_a_link_is_not_followed)
{
	struct rendezvous r;
	char victim[112];

	start();
	snprintf(victim, sizeof(victim), "%s/victim", directory);
	ck_assert_int_eq(symlink(victim, lock), 0);
	ck_assert_int_lt(open_and_listen(&r), 0);
	ck_assert_int_eq(file_kind(victim), 0);
	unlink(lock);
	stop();
}
END_TEST

START_TEST(a_socket_that_is_not_ours_any_more_stays)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct rendezvous r;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	start();
	ck_assert_int_eq(open_and_listen(&r), 0);
	unlink(path);
	strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	rendezvous_close(&r);
	ck_assert_int_eq(file_kind(path), S_IFSOCK);
	close(fd);
	unlink(path);
	stop();
}
END_TEST

START_TEST(a_directory_that_others_can_write_is_refused)
{
	struct rendezvous r;

	start();
	chmod(directory, 0777);
	ck_assert_int_eq(open_and_listen(&r), -EPERM);
	chmod(directory, 01777);
	ck_assert_int_eq(open_and_listen(&r), 0);
	rendezvous_close(&r);
	stop();
}
END_TEST

START_TEST(a_missing_directory_is_made_and_removed)
{
	struct rendezvous r;

	start();
	rmdir(directory);
	ck_assert_int_eq(open_and_listen(&r), 0);
	rendezvous_close(&r);
	ck_assert_int_eq(file_kind(directory), 0);
}
END_TEST

START_TEST(unusable_paths_are_refused)
{
	char lengthy[256];
	struct rendezvous r;

	memset(lengthy, 'x', sizeof(lengthy));
	lengthy[0] = '/';
	lengthy[sizeof(lengthy) - 1] = '\0';
	ck_assert_int_eq(rendezvous_open(lengthy, &r, &err), -EINVAL);
	ck_assert_int_eq(rendezvous_open("tierd.sock", &r, &err), -EINVAL);
	ck_assert_int_eq(rendezvous_open("/nosuch/deep/tierd.sock", &r, &err), -ENOENT);
}
END_TEST

/* Of two that start at once exactly one survives; the survivor ends and the next round begins. */
START_TEST(of_two_starters_one_survives)
{
	start();
	for (int round = 0; round < 100; round++) {
		int go[2], hold[2], winners = 0, status;
		pid_t pid[2];

		ck_assert_int_eq(pipe(go) | pipe(hold), 0);
		for (int i = 0; i < 2; i++) {
			pid[i] = fork();
			if (pid[i] == 0) {
				struct rendezvous r;
				char byte;
				int rc;

				close(go[1]);
				close(hold[1]);
				(void)!read(go[0], &byte, 1); /* both at once */
				rc = open_and_listen(&r);
				if (rc == 0) {
					(void)!read(hold[0], &byte, 1);
					rendezvous_close(&r);
				}
				_exit(rc == 0 ? 0 : rc == -EBUSY ? 1 : 2);
			}
		}
		close(go[1]);
		/* The loser ends by itself, the winner when it is let go. */
		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(WEXITSTATUS(status), 1);
		close(hold[1]);
		ck_assert_int_gt(wait(&status), 0);
		winners += WEXITSTATUS(status) == 0;
		ck_assert_int_eq(winners, 1);
		close(go[0]);
		close(hold[0]);
	}
	stop();
}
END_TEST

UNIT_MAIN("daemon_rendezvous", socket_and_lock_go_with_their_owner,
	  a_second_one_is_told_who_holds_the_lock, paths_that_differ_only_by_name_are_the_same,
	  a_stale_socket_is_taken_over, a_socket_that_answers_is_not_stale_though_its_lock_is_gone,
	  what_is_no_socket_is_never_removed, a_lock_that_is_a_link_is_not_followed,
	  a_socket_that_is_not_ours_any_more_stays, a_directory_that_others_can_write_is_refused,
	  a_missing_directory_is_made_and_removed, unusable_paths_are_refused,
	  of_two_starters_one_survives)
