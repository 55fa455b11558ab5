// Attention of single queries over caches in bf16 or fp8, with heads of 64. A lane reads 16 bytes of a key or value: 8
// lanes read one in bf16, 4 in fp8, so a block of 128 reads 16 or 32 at once, several times in flight. Every sum's order
// depends on the row's own lengths alone, so a result is the same to the last bit whatever else is in the batch.

constexpr int HEAD = 64;
constexpr int ATTENTION_THREADS = 128;
// Audio positions of one block; longer audio is split over several blocks.
constexpr int SPLIT = 256;
constexpr int TEXT_MAX = 448;
// Reads in flight of each thread, in audio and in text: half of SPLIT in bf16, and all of it in fp8.
constexpr int AUDIO_LOADS = 8;
constexpr int TEXT_LOADS = 4;

// softmax(query · keys) · values of one head, not divided by `total`. `query` (64), `scores` (count) and
// `result` (64) are shared, `keys(n)` and `values(n)` read this lane's 16 bytes of the nth key and value. `count` is at
// least 1 and the same for all threads. `kept` (count), if not null, gets query · keys.
template <typename Number, int LOADS, typename Keys, typename Values>
__device__ inline void attend(
    const float *query, int count, Keys keys, Values values, float *scores, float *kept, float *result,
    float *maximum, float *total) {
    constexpr int EACH = Lane<Number>::NUMBERS, LANES = HEAD / EACH, GROUPS = ATTENTION_THREADS / LANES;
    __shared__ float parts[ATTENTION_THREADS / 32][HEAD];
    int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    float own[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) own[k] = query[lane * EACH + k];
    for (int base = group; base - group < count; base += LOADS * GROUPS) {
        // All reads before the first product, so that they are in flight together.
        uint4 raw[LOADS];
#pragma unroll
        for (int load = 0; load < LOADS; load++) {
            int n = base + load * GROUPS;
            raw[load] = n < count ? keys(n) : uint4{0, 0, 0, 0};
        }
#pragma unroll
        for (int load = 0; load < LOADS; load++) {
            int n = base + load * GROUPS;
            Lane<Number> key(raw[load]);
            float dot = 0.0f;
#pragma unroll
            for (int k = 0; k < EACH; k++) dot += own[k] * key.at[k];
            for (int offset = 1; offset < LANES; offset *= 2) dot += __shfl_xor_sync(0xffffffffu, dot, offset);
            if (lane == 0 && n < count) scores[n] = dot;
        }
    }
    __syncthreads();
    float largest = -INFINITE;
    for (int n = threadIdx.x; n < count; n += blockDim.x) {
        largest = fmaxf(largest, scores[n]);
        if (kept) kept[n] = scores[n];
    }
    largest = block_max(largest);
    float sum = 0.0f;
    for (int n = threadIdx.x; n < count; n += blockDim.x) {
        scores[n] = expf(scores[n] - largest);
        sum += scores[n];
    }
    sum = block_sum(sum);
    float gathered[EACH] = {};
    for (int base = group; base < count; base += LOADS * GROUPS) {
        uint4 raw[LOADS];
#pragma unroll
        for (int load = 0; load < LOADS; load++) {
            int n = base + load * GROUPS;
            raw[load] = n < count ? values(n) : uint4{0, 0, 0, 0};
        }
#pragma unroll
        for (int load = 0; load < LOADS; load++) {
            int n = base + load * GROUPS;
            Lane<Number> value(raw[load]);
            float weight = n < count ? scores[n] : 0.0f;
#pragma unroll
            for (int k = 0; k < EACH; k++) gathered[k] += weight * value.at[k];
        }
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        for (int offset = LANES; offset < 32; offset *= 2)
            gathered[k] += __shfl_xor_sync(0xffffffffu, gathered[k], offset);
        if (threadIdx.x % 32 < LANES) parts[threadIdx.x / 32][lane * EACH + k] = gathered[k];
    }
    __syncthreads();
    if (threadIdx.x < HEAD) {
        float value = 0.0f;
        for (int warp = 0; warp < ATTENTION_THREADS / 32; warp++) value += parts[warp][threadIdx.x];
        result[threadIdx.x] = value;
    }
    __syncthreads();
    *maximum = largest;
    *total = sum;
}

// Self-attention of each row over the tokens before it and itself, whose keys and values it appends to the
// cache. Grid (rows, heads). `fused` (rows, 3 · width) f32: query, key, value without their `bias`. Caches
// (slots, heads, text positions, 64). Rows that the same launch appends are read from `fused`, not from the cache.
extern "C" __global__ void text_attention(
    const Row *rows, const int *positions, const float *fused, const float *bias, int heads,
    int text_positions, bf16 *key_cache, bf16 *value_cache, bf16 *attended) {
    int index = blockIdx.x, head = blockIdx.y, width = heads * HEAD;
    int position = positions[index];
    if (position < 0) return;
    Row row = rows[index];
    int first_position = position - (index - row.first);
    size_t cache = ((size_t)row.slot * heads + head) * text_positions * HEAD;
    __shared__ float query[HEAD], scores[TEXT_MAX], result[HEAD];
    // One element of this head's query (part 0), key (1) or value (2) of a row of this launch, with its bias.
    auto made = [&](int of_row, int part, int n) {
        int column = part * width + head * HEAD + n;
        return fused[(size_t)of_row * 3 * width + column] + (bias ? bias[column] : 0.0f);
    };
    if (threadIdx.x < HEAD) {
        int n = threadIdx.x;
        query[n] = made(index, 0, n) * 0.125f;
        key_cache[cache + (size_t)position * HEAD + n] = to_bf16(made(index, 1, n));
        value_cache[cache + (size_t)position * HEAD + n] = to_bf16(made(index, 2, n));
    }
    __syncthreads();
    constexpr int EACH = Lane<bf16>::NUMBERS;
    int column = threadIdx.x % (HEAD / EACH) * EACH;
    auto read = [&](const bf16 *from, int part, int n) {
        if (n < first_position) return *(const uint4 *)(from + cache + (size_t)n * HEAD + column);
        // Rounded as in the cache, so that a prompt gives the same result in one launch or in two.
        unsigned pairs[EACH / 2];
#pragma unroll
        for (int k = 0; k < EACH / 2; k++) {
            int of_row = row.first + n - first_position, first = column + 2 * k;
            pairs[k] = to_bf16(made(of_row, part, first)) | (unsigned)to_bf16(made(of_row, part, first + 1)) << 16;
        }
        return uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
    };
    auto keys = [&](int n) { return read(key_cache, 1, n); };
    auto values = [&](int n) { return read(value_cache, 2, n); };
    float maximum, total;
    attend<bf16, TEXT_LOADS>(
        query, position + 1, keys, values, scores, nullptr, result, &maximum, &total);
    if (threadIdx.x < HEAD)
        attended[(size_t)index * width + head * HEAD + threadIdx.x] = to_bf16(result[threadIdx.x] / total);
}

// The scores of alignment heads that `cross_attention` keeps for `alignment_costs`: (slots, alignment heads, 256 rows by
// text position modulo 256, audio positions), where only rows that choose a token are kept.
struct Kept {
    // For each head its index among the alignment heads, or -1; null for a layer that has none.
    const int *heads;
    int count;
    float *scores;
};
constexpr int KEPT_ROWS = 256;

// The common body of `cross_attention` and `cross_attention_fp8`. Keys and values are multiplied by the slot's and
// head's entries of `key_scales` and `value_scales`.
template <typename Number>
__device__ inline void attend_to_audio(
    const Row *rows, const int *positions, const float *product, const float *bias, int heads,
    int audio_positions, const int *lengths, const Number *key_cache, const Number *value_cache,
    const float *key_scales, const float *value_scales, Kept keep, float *parts) {
    int index = blockIdx.x, head = blockIdx.y, width = heads * HEAD;
    int position = positions[index];
    if (position < 0) return;
    int slot = rows[index].slot;
    int begin = blockIdx.z * SPLIT;
    int count = min(SPLIT, lengths[slot] - begin);
    float *part = parts + (((size_t)index * heads + head) * gridDim.z + blockIdx.z) * (HEAD + 2);
    if (count <= 0) {
        // An empty part: weight 0.
        if (threadIdx.x < HEAD + 2) part[threadIdx.x] = threadIdx.x == HEAD ? -INFINITE : 0.0f;
        return;
    }
    __shared__ float query[HEAD], scores[SPLIT], result[HEAD];
    size_t cache = (size_t)slot * heads + head;
    float key_scale = key_scales ? key_scales[cache] : 1.0f;
    float value_scale = value_scales ? value_scales[cache] : 1.0f;
    if (threadIdx.x < HEAD) {
        int column = head * HEAD + threadIdx.x;
        float value = product[(size_t)index * width + column] + (bias ? bias[column] : 0.0f);
        query[threadIdx.x] = value * 0.125f * key_scale;
    }
    float *kept = nullptr;
    int kept_head = keep.heads && rows[index].wanted & CHOOSE ? keep.heads[head] : -1;
    if (kept_head >= 0) {
        size_t row = ((size_t)slot * keep.count + kept_head) * KEPT_ROWS + position % KEPT_ROWS;
        kept = keep.scores + row * audio_positions + begin;
    }
    __syncthreads();
    constexpr int EACH = Lane<Number>::NUMBERS;
    cache = (cache * audio_positions + begin) * HEAD + threadIdx.x % (HEAD / EACH) * EACH;
    auto keys = [&](int n) { return *(const uint4 *)(key_cache + cache + (size_t)n * HEAD); };
    auto values = [&](int n) { return *(const uint4 *)(value_cache + cache + (size_t)n * HEAD); };
    float maximum, total;
    attend<Number, AUDIO_LOADS>(query, count, keys, values, scores, kept, result, &maximum, &total);
    if (threadIdx.x < HEAD) part[threadIdx.x] = result[threadIdx.x] * value_scale;
    if (threadIdx.x == 0) {
        part[HEAD] = maximum;
        part[HEAD + 1] = total;
    }
}

// Cross-attention of each row over a part of its slot's audio. Grid (rows, heads, splits). `product`
// (rows, width) f32: queries without their `bias`. Caches (slots, heads, audio positions, 64), of which each slot
// has its own length. `kept_heads`, `kept_count`, `kept`: see `Kept`. `parts` (rows, heads, splits, 66): sums, then the
// maximum, then the total.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 8) cross_attention(
    const Row *rows, const int *positions, const float *product, const float *bias, int heads,
    int audio_positions, const int *lengths, const bf16 *key_cache, const bf16 *value_cache, const int *kept_heads,
    int kept_count, float *kept, float *parts) {
    const float *as_they_are = nullptr;
    attend_to_audio(
        rows, positions, product, bias, heads, audio_positions, lengths, key_cache, value_cache, as_they_are,
        as_they_are, Kept{kept_heads, kept_count, kept}, parts);
}

// The same over caches in fp8, with their scales (slots, heads).
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 8) cross_attention_fp8(
    const Row *rows, const int *positions, const float *product, const float *bias, int heads,
    int audio_positions, const int *lengths, const fp8 *key_cache, const fp8 *value_cache, const int *kept_heads,
    int kept_count, float *kept, const float *key_scales, const float *value_scales, float *parts) {
    attend_to_audio(
        rows, positions, product, bias, heads, audio_positions, lengths, key_cache, value_cache, key_scales,
        value_scales, Kept{kept_heads, kept_count, kept}, parts);
}

// Joins the parts. Grid (rows, heads), blocks of 64.
extern "C" __global__ void cross_join(const int *positions, const float *parts, int splits, bf16 *attended) {
    if (positions[blockIdx.x] < 0) return;
    size_t head = (size_t)blockIdx.x * gridDim.y + blockIdx.y;
    const float *part = parts + head * splits * (HEAD + 2);
    float largest = -INFINITE;
    for (int n = 0; n < splits; n++) largest = fmaxf(largest, part[n * (HEAD + 2) + HEAD]);
    float sum = 0.0f, total = 0.0f;
    for (int n = 0; n < splits; n++) {
        const float *one = part + n * (HEAD + 2);
        float weight = one[HEAD] == -INFINITE ? 0.0f : expf(one[HEAD] - largest);
        sum += weight * one[threadIdx.x];
        total += weight * one[HEAD + 1];
    }
    // A slot without audio: the result is 0.
    attended[head * HEAD + threadIdx.x] = to_bf16(total > 0.0f ? sum / total : 0.0f);
}
