// The kernels on a CPU, for tests: the same sources, compiled as C++ for x86-64. Blocks run one after the other; the
// threads of a block are coroutines, which switch at barriers and shuffles. Slow, and with the same arithmetic except
// for fused multiply-add.
//
//   c++ -std=c++17 -O2 -shared -fPIC -o libemulation.so emulation.cpp

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct Index {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
Index threadIdx, blockIdx, blockDim, gridDim;

template <typename To, typename From> static To cast(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned bits) { return cast<float>(bits); }
static unsigned __float_as_uint(float value) { return cast<unsigned>(value); }
static float __int_as_float(int bits) { return cast<float>(bits); }
static int __float_as_int(float value) { return cast<int>(value); }
static float rsqrtf(float value) { return 1.0f / sqrtf(value); }
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static void atomicMax(int *place, int value) { *place = max(*place, value); }

// Saves the callee-saved registers and the stack, and continues on another stack (System V ABI).
extern "C" void change_places(void **leave, void *enter);
asm(R"(
.text
.globl change_places
.hidden change_places
.type change_places, @function
change_places:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rax
    jmp *%rax
)");

constexpr int THREADS = 1024, STACK = 64 << 10;

struct Barrier {
    int alive, arrived;
    unsigned generation;
};

alignas(16) static char stacks[THREADS][STACK];
static void *resting[THREADS], *scheduler;
static bool done[THREADS];
static uint64_t exchanged[THREADS];
static Barrier whole, warps[THREADS / 32];
static int current;
static bool moved;
static std::function<void()> body;

static void yield() { change_places(&resting[current], scheduler); }

static void open_if_complete(Barrier &barrier) {
    if (barrier.arrived == 0 || barrier.arrived < barrier.alive) return;
    barrier.arrived = 0;
    barrier.generation++;
    moved = true;
}

static void wait(Barrier &barrier) {
    unsigned generation = barrier.generation;
    barrier.arrived++;
    open_if_complete(barrier);
    while (barrier.generation == generation) yield();
}

static void __syncthreads() { wait(whole); }

template <typename T> static T __shfl_xor_sync(unsigned, T value, int offset) {
    memcpy(&exchanged[current], &value, sizeof value);
    wait(warps[current / 32]);
    memcpy(&value, &exchanged[current ^ offset], sizeof value);
    wait(warps[current / 32]);
    return value;
}

static void thread() {
    body();
    done[current] = true;
    moved = true;
    whole.alive--;
    warps[current / 32].alive--;
    open_if_complete(whole);
    open_if_complete(warps[current / 32]);
    yield();
}

static void run_block(unsigned threads) {
    whole = {(int)threads, 0, 0};
    for (unsigned n = 0; n < threads; n++) {
        warps[n / 32] = {min(32, threads - n / 32 * 32), 0, 0};
        void **top = (void **)(stacks[n] + STACK - 64);
        memset(top, 0, 64);
        top[6] = (void *)thread;
        resting[n] = top;
        done[n] = false;
    }
    do {
        moved = false;
        for (current = 0; current < (int)threads; current++) {
            if (done[current]) continue;
            threadIdx = {(unsigned)current, 0, 0};
            change_places(&scheduler, resting[current]);
        }
        if (!moved && whole.alive > 0) {
            fprintf(stderr, "a barrier that not all threads reach\n");
            abort();
        }
    } while (whole.alive > 0);
}

#include "prelude.cu"
#include "embed.cu"
#include "add_norm.cu"
#include "attention.cu"
#include "alignment.cu"
#include "choose.cu"
#include "log_mel.cu"

template <typename... A, size_t... N>
static void call(void (*kernel)(A...), void **arguments, std::index_sequence<N...>) {
    kernel(*(A *)arguments[N]...);
}

template <typename... A> static void bind(void (*kernel)(A...), void **arguments) {
    body = [=] { call(kernel, arguments, std::index_sequence_for<A...>()); };
}

// Returns 0 if there is no such kernel. `arguments` are those of cuLaunchKernel. One call at a time.
extern "C" int emulate(const char *name, const unsigned *grid, unsigned block, void **arguments) {
    body = nullptr;
#define KERNEL(kernel) \
    if (!strcmp(name, #kernel)) bind(kernel, arguments);
    KERNEL(embed)
    KERNEL(add_norm)
    KERNEL(encoder_norm)
    KERNEL(bias_gelu)
    KERNEL(text_attention)
    KERNEL(cross_attention)
    KERNEL(cross_attention_fp8)
    KERNEL(cross_join)
    KERNEL(alignment_rows)
    KERNEL(alignment_columns)
    KERNEL(alignment_costs)
    KERNEL(choose)
    KERNEL(log_mel)
    KERNEL(clamp_mel)
    if (!body || block > THREADS) return 0;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block, 1, 1};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                run_block(block);
            }
    return 1;
}
