/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tierd.h>

#define COUNT 1000

static int failed(void)
{
	fprintf(stderr, "minimal: %s\n", tierd_error(NULL));
	return 1;
}

int main(void)
{
	struct tierd_spec spec = { .name = "weights",
				   .class_ = TIERD_PARAMETER,
				   .dtype = TIERD_F32,
				   .ndim = 1,
				   .shape = { COUNT } };
	struct tierd_info info;
	struct tierd_view view;
	struct tierd *t;
	tierd_tensor weights;
	float *w;

	if (tierd_open(NULL, "minimal", 0, &t) < 0)
		return failed();
	if (tierd_create(t, &spec, 1, &weights) < 0)
		return failed();

	for (int step = 1; step <= 3; step++) {
		/* Wherever the bytes are now: in host memory they are needed next. */
		if (tierd_acquire(t, weights, TIERD_HOST, TIERD_READ | TIERD_WRITE, -1, &view) < 0)
			return failed();
		w = view.data;
		for (int i = 0; i < COUNT; i++)
			w[i] += i;       /* new tensors are zeros */
		tierd_release(t, &view); /* from here on they may move */
		tierd_step(t);
	}

	if (tierd_acquire(t, weights, TIERD_HOST, TIERD_READ, -1, &view) < 0 ||
	    tierd_stat(t, weights, &info) < 0)
		return failed();
	w = view.data;
	printf("%s: the last of %llu bytes is %g\n", info.name, (unsigned long long)info.bytes,
	       w[COUNT - 1]);
	tierd_release(t, &view);
	tierd_destroy(t, &weights, 1);
	tierd_close(t);
	return 0;
}
