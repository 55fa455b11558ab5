// What all kernels share: bf16 and fp8 without headers, reductions over a warp and a block.
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

// The bits go to where f32 has such ones, whose exponent is 120 more; numbers below the normal ones come out right,
// too. Not for the codes 0x7f and 0xff, which are no numbers.
__device__ inline float to_float(fp8 value) {
    return __uint_as_float((value & 0x80u) << 24 | (value & 0x7fu) << 20) * 1.329227995784916e36f;
}

// Eight numbers of one lane.
struct Eight {
    float at[8];
};

// `from` lies on a boundary of 16 bytes.
__device__ inline Eight load_eight(const bf16 *from) {
    uint4 raw = *(const uint4 *)from;
    unsigned pairs[4] = {raw.x, raw.y, raw.z, raw.w};
    Eight eight;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        eight.at[2 * n] = __uint_as_float(pairs[n] << 16);
        eight.at[2 * n + 1] = __uint_as_float(pairs[n] & 0xffff0000u);
    }
    return eight;
}

// `from` lies on a boundary of 8 bytes.
__device__ inline Eight load_eight(const fp8 *from) {
    uint2 raw = *(const uint2 *)from;
    Eight eight;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        eight.at[n] = to_float((fp8)(raw.x >> 8 * n));
        eight.at[4 + n] = to_float((fp8)(raw.y >> 8 * n));
    }
    return eight;
}

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
    // Below 0: nothing to do.
    int slot;
    // Where the token goes; not read where the token comes from the state.
    int position;
    // Below 0: the slot's last token, at the slot's next position.
    int token;
    // The first row of this launch that belongs to the same run of tokens; the rows between follow one another.
    int first;
    // NO_SPEECH, CHOOSE, both or none.
    int wanted;
};

constexpr int NO_SPEECH = 1;
constexpr int CHOOSE = 2;

// What a slot knows between steps. Mirrors `State` in src/cuda/layout.rs.
struct State {
    // The last token, and where it goes.
    int token;
    int position;
    // Tokens of this attempt, without the prompt.
    int written;
    // The last of them that is a timestamp; below 0: none.
    int last_timestamp;
    // Whether the last one is, and the one before it; true where there is none before it.
    int last_is_timestamp;
    int before_is_timestamp;
    int finished;
    // The attempt ends with so many tokens.
    int tokens_max;
    // Not 0: the end of the text is not written before that.
    int forced;
    // 0: the likeliest token.
    float temperature;
    unsigned seed;
    // The deepest node in the trie of the slot's terms where the last tokens lead; below 0: there are no terms.
    int node;
    // A term on trial, one that the model alone would not have written: how many tokens stood before its first such
    // token; below 0: there is none.
    int trial_written;
    // How many terms were taken back.
    int returns;
    // The node of the last token of the term on trial; how far its tokens lie below the likeliest, together.
    int trial_node;
    float trial_loss;
    // Where the attempt goes on if it fails: the position of the token `instead`, the node before it, whether the
    // token before it is a timestamp, and what became of it when it was not written.
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
    // Above 0: how far below the likeliest tokens a term's tokens up to here may lie, together. Below 0: how
    // much the logit of an unwanted term's last token loses.
    float gain;
    // The first of the nodes that follow it, in the order of their tokens, up to the first one of the next node.
    int first;
    // Where the same tokens lead without the first of them, or the first few.
    int otherwise;
    // The first token of the wanted term that ends here; below 0: none ends here.
    int opening;
};

// The nodes where a term begins: anywhere, and after a timestamp.
constexpr int ANYWHERE = 0;
constexpr int FIRST = 1;

// What became of one row. Mirrors `Outcome` in src/cuda/layout.rs.
struct Outcome {
    // Below 0: none was chosen.
    int token;
    int finished;
    // Tokens of the attempt that stand before it.
    int written;
    // ln of the token's probability among those allowed.
    float log_probability;
    // Its probability among text, before the rules.
    float probability;
    // That of there being no speech, where it was asked for.
    float no_speech;
};
