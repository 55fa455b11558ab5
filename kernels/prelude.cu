// Shared by all kernels: bf16 and fp8 without headers, reductions over a warp and a block, structures.
//
// The files of this folder are compiled as one, in the order of src/cuda/kernels.rs, for the device at hand
// (NVRTC) and, in tests, as C++ for the processor (emulation.cpp). So they use no header, no dynamic shared
// memory and no cooperative groups.

typedef unsigned short bf16;
// e4m3: a sign, 4 bits of exponent, 3 of mantissa (Micikevicius et al., arXiv:2209.05433).
typedef unsigned char fp8;

#define INFINITE __int_as_float(0x7f800000)

__device__ inline float to_float(bf16 value) {
    return __uint_as_float((unsigned)value << 16);
}

// To the nearest, ties to even.
__device__ inline bf16 to_bf16(float value) {
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Moves the bits to their places in f32, whose exponent bias is 120 more; also right for subnormal numbers. Not for the
// codes 0x7f and 0xff, which are NaN.
__device__ inline float to_float(fp8 value) {
    return __uint_as_float((value & 0x80u) << 24 | (value & 0x7fu) << 20) * 1.329227995784916e36f;
}

// 16 bytes of numbers, as f32.
template <typename Number> struct Lane;

template <> struct Lane<bf16> {
    static constexpr int NUMBERS = 8;
    float at[NUMBERS];

    __device__ inline explicit Lane(uint4 raw) {
        unsigned pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            at[2 * n] = __uint_as_float(pairs[n] << 16);
            at[2 * n + 1] = __uint_as_float(pairs[n] & 0xffff0000u);
        }
    }
};

template <> struct Lane<fp8> {
    static constexpr int NUMBERS = 16;
    float at[NUMBERS];

    __device__ inline explicit Lane(uint4 raw) {
        unsigned fours[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int n = 0; n < NUMBERS; n += 2) to_floats((unsigned short)(fours[n / 4] >> 8 * (n % 4)), at + n);
    }

    // Exact either way: f16 has all numbers of e4m3.
    static __device__ inline void to_floats(unsigned short pair, float *two) {
#if __CUDA_ARCH__ >= 890
        asm("{\n"
            ".reg .b32 halves;\n"
            ".reg .b16 low, high;\n"
            "cvt.rn.f16x2.e4m3x2 halves, %2;\n"
            "mov.b32 {low, high}, halves;\n"
            "cvt.f32.f16 %0, low;\n"
            "cvt.f32.f16 %1, high;\n"
            "}"
            : "=f"(two[0]), "=f"(two[1])
            : "h"(pair));
#else
        two[0] = to_float((fp8)pair);
        two[1] = to_float((fp8)(pair >> 8));
#endif
    }
};

__device__ inline float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

__device__ inline float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

// The sum over the block, in every thread. Blocks are whole warps, at most 32. The order of the sum depends
// on the block's size alone.
__device__ inline float block_sum(float value) {
    __shared__ float parts[32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = warp_sum(value);
    if (lane == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = warp_sum(lane < warps ? parts[lane] : 0.0f);
    __syncthreads();
    return value;
}

__device__ inline float block_max(float value) {
    __shared__ float parts[32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = warp_max(value);
    if (lane == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = warp_max(lane < warps ? parts[lane] : -INFINITE);
    __syncthreads();
    return value;
}

// One row of a launch: a token of some slot. Mirrors `Row` in src/cuda/layout.rs.
struct Row {
    // Below 0 for an empty row.
    int slot;
    // The token's position; not read if the token comes from the state.
    int position;
    // Below 0 for the slot's last token, at the slot's next position.
    int token;
    // The first row of this launch that belongs to the same run of tokens; the rows between follow one another.
    int first;
    // NO_SPEECH, CHOOSE, both or none.
    int wanted;
};

constexpr int NO_SPEECH = 1;
constexpr int CHOOSE = 2;

// The state of a slot between steps. Mirrors `State` in src/cuda/layout.rs.
struct State {
    // The last token and its position.
    int token;
    int position;
    // Tokens of this attempt, without the prompt.
    int written;
    // The last of them that is a timestamp; below 0 if none is.
    int last_timestamp;
    // Whether the last token is a timestamp, and the one before it; true if there is none before it.
    int last_is_timestamp;
    int before_is_timestamp;
    int finished;
    // The attempt ends at this many tokens.
    int tokens_max;
    // Not 0 if the attempt does not end before that.
    int forced;
    // 0 takes the likeliest token; above 0 tokens are sampled.
    float temperature;
    unsigned seed;
    // The deepest node that the last tokens have reached in the trie of the slot's terms; below 0 without terms.
    int node;
    // The term on trial, which the model alone would not have written: the number of tokens before its first such
    // token; below 0 without one.
    int trial_written;
    // Terms that were taken back.
    int returns;
    // The node of the last token of the term on trial; how far its tokens lie below the likeliest, together.
    int trial_node;
    float trial_loss;
    // How the attempt continues if the trial fails: the position of the token `instead`, the node before it, whether
    // the token before it is a timestamp, and the token with its probabilities.
    int instead_position;
    int before_node;
    int before_trial_is_timestamp;
    int instead;
    float instead_log_probability;
    float instead_probability;
};

// A token of a term. Mirrors `TrieNode` in src/cuda/layout.rs, which says how they are ordered.
struct TrieNode {
    int token;
    // Above 0: the margin by which the term's tokens up to here may together lie below the likeliest ones. Below 0:
    // the penalty on the logit of an unwanted term's last token.
    float gain;
    // Index of its first follower, ordered by token; its followers end where the next node's begin.
    int first;
    // The node that the same tokens lead to without the first one or more.
    int otherwise;
    // The first token of the wanted term that ends here; below 0 if none does.
    int opening;
};

// The nodes where a term begins: anywhere, and after a timestamp.
constexpr int ANYWHERE = 0;
constexpr int FIRST = 1;

// The result of one row. Mirrors `Outcome` in src/cuda/layout.rs.
struct Outcome {
    // Below 0 if none was chosen.
    int token;
    int finished;
    // Tokens of the attempt before it.
    int written;
    // ln of the token's probability among those allowed.
    float log_probability;
    // Its probability among text, before the rules.
    float probability;
    // The probability that there is no speech, if wanted.
    float no_speech;
};
