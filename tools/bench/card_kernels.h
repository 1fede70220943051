/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the benchmarks as PTX text, which the driver compiles: no CUDA compiler is needed
 * to build them. In C they would be, with i from the thread's index and s the number of threads:
 *
 *   fill(p, n, seed)        for (; i < n; i += s) p[i] = (uint32_t)i * 2654435761u ^ seed;
 *   check(p, n, seed, bad)  for (; i < n; i += s) if (p[i] differs) (*bad)++, atomically;
 *   spin(p, n)              x = p[i]; n times x = x * c + 0.5f; p[i] = x;
 *   sweep(p, n)             for (; i < n; i += s) p[i] += 1;
 */
#ifndef TIERD_TOOLS_BENCH_CARD_KERNELS_H
#define TIERD_TOOLS_BENCH_CARD_KERNELS_H

#define PTX_INDEX                           \
	"	mov.u32 %r0, %ctaid.x;\n"         \
	"	mov.u32 %r1, %ntid.x;\n"          \
	"	mov.u32 %r2, %tid.x;\n"           \
	"	mad.lo.u32 %r3, %r0, %r1, %r2;\n" \
	"	cvt.u64.u32 %i, %r3;\n"           \
	"	mov.u32 %r4, %nctaid.x;\n"        \
	"	mul.lo.u32 %r4, %r4, %r1;\n"      \
	"	cvt.u64.u32 %s, %r4;\n"
#define PTX_REGISTERS                          \
	"	.reg .u32 %r<9>;\n"                  \
	"	.reg .u64 %i, %s, %p, %n, %a, %b;\n" \
	"	.reg .f32 %x;\n"                     \
	"	.reg .pred %q;\n"
#define PTX_ADDRESS             \
	"	shl.b64 %a, %i, 2;\n" \
	"	add.u64 %a, %a, %p;\n"
#define PTX_WORD /* %r6: the pattern's word at %i; %r5: the seed */ \
	"	cvt.u32.u64 %r6, %i;\n"                                   \
	"	mul.lo.u32 %r6, %r6, 2654435761;\n"                       \
	"	xor.b32 %r6, %r6, %r5;\n"
#define PTX_LOOP                     \
	"LOOP:\n"                    \
	"	setp.ge.u64 %q, %i, %n;\n" \
	"	@%q bra DONE;\n"
#define PTX_NEXT                 \
	"	add.u64 %i, %i, %s;\n" \
	"	bra LOOP;\n"           \
	"DONE:\n"

static const char card_kernels[] =
	".version 6.4\n.target sm_52\n.address_size 64\n"

	".visible .entry bench_fill(.param .u64 p, .param .u64 n, .param .u32 seed) "
	"{\n" PTX_REGISTERS PTX_INDEX "	ld.param.u64 %p, [p];\n	ld.param.u64 %n, [n];\n	"
	"ld.param.u32 %r5, [seed];\n" PTX_LOOP PTX_WORD PTX_ADDRESS
	"	st.global.u32 [%a], %r6;\n" PTX_NEXT "	ret;\n}\n"

	".visible .entry bench_check(.param .u64 p, .param .u64 n, .param .u32 seed, "
	".param .u64 bad) {\n" PTX_REGISTERS PTX_INDEX
	"	ld.param.u64 %p, [p];\n	ld.param.u64 %n, [n];\n	ld.param.u32 %r5, [seed];\n"
	"	ld.param.u64 %b, [bad];\n" PTX_LOOP PTX_WORD PTX_ADDRESS
	"	ld.global.u32 %r7, [%a];\n"
	"	setp.ne.u32 %q, %r6, %r7;\n"
	"	@%q red.global.add.u64 [%b], 1;\n" PTX_NEXT "	ret;\n}\n"

	".visible .entry bench_spin(.param .u64 p, .param .u32 n) {\n" PTX_REGISTERS PTX_INDEX
	"	ld.param.u64 %p, [p];\n	ld.param.u32 %r5, [n];\n" PTX_ADDRESS
	"	ld.global.f32 %x, [%a];\n"
	"LOOP:\n"
	"	setp.eq.u32 %q, %r5, 0;\n"
	"	@%q bra DONE;\n"
	"	fma.rn.f32 %x, %x, 0f3F800347, 0f3F000000;\n"
	"	sub.u32 %r5, %r5, 1;\n"
	"	bra LOOP;\n"
	"DONE:\n"
	"	st.global.f32 [%a], %x;\n"
	"	ret;\n}\n"

	".visible .entry bench_sweep(.param .u64 p, .param .u64 n) {\n" PTX_REGISTERS PTX_INDEX
	"	ld.param.u64 %p, [p];\n	ld.param.u64 %n, [n];\n" PTX_LOOP PTX_ADDRESS
	"	ld.global.f32 %x, [%a];\n"
	"	add.rn.f32 %x, %x, 0f3F800000;\n"
	"	st.global.f32 [%a], %x;\n" PTX_NEXT "	ret;\n}\n";

#endif
