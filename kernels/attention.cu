// Attention of single queries over caches in bf16 or fp8, with heads of 64. A key is read by 8 lanes, 16 or 8 bytes
// each; 16 keys at once in a block of 128. Every sum's order depends on the row's own lengths alone, so a result is
// the same to the last bit whatever else is in the batch.

constexpr int HEAD = 64;
constexpr int LANES = HEAD / 8;
constexpr int ATTENTION_THREADS = 128;
constexpr int GROUPS = ATTENTION_THREADS / LANES;
// Audio positions of one block; longer audio is split over several blocks.
constexpr int SPLIT = 256;
constexpr int TEXT_MAX = 448;

// softmax(query · keys) · values of one head, not divided by `total`. `query` (64), `scores` (count) and
// `result` (64) are shared, `keys(n)` and `values(n)` give 8 numbers of the nth key and value, those of this
// lane. `count` is at least 1 and the same for all threads.
template <typename Keys, typename Values>
__device__ inline void attend(
    const float *query, int count, Keys keys, Values values, float *scores, float *result, float *maximum,
    float *total) {
    __shared__ float parts[ATTENTION_THREADS / 32][HEAD];
    int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    float own[8];
#pragma unroll
    for (int k = 0; k < 8; k++) own[k] = query[lane * 8 + k];
#pragma unroll 4
    for (int base = 0; base < count; base += GROUPS) {
        int n = base + group;
        float dot = 0.0f;
        if (n < count) {
            Eight key = keys(n);
#pragma unroll
            for (int k = 0; k < 8; k++) dot += own[k] * key.at[k];
        }
        for (int offset = 1; offset < LANES; offset *= 2) dot += __shfl_xor_sync(0xffffffffu, dot, offset);
        if (lane == 0 && n < count) scores[n] = dot;
    }
    __syncthreads();
    float largest = -INFINITE;
    for (int n = threadIdx.x; n < count; n += blockDim.x) largest = fmaxf(largest, scores[n]);
    largest = block_max(largest);
    float sum = 0.0f;
    for (int n = threadIdx.x; n < count; n += blockDim.x) {
        scores[n] = expf(scores[n] - largest);
        sum += scores[n];
    }
    sum = block_sum(sum);
    float gathered[8] = {};
#pragma unroll 4
    for (int n = group; n < count; n += GROUPS) {
        Eight value = values(n);
        float weight = scores[n];
#pragma unroll
        for (int k = 0; k < 8; k++) gathered[k] += weight * value.at[k];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        for (int offset = LANES; offset < 32; offset *= 2)
            gathered[k] += __shfl_xor_sync(0xffffffffu, gathered[k], offset);
        if (threadIdx.x % 32 < LANES) parts[threadIdx.x / 32][lane * 8 + k] = gathered[k];
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
    int lane = threadIdx.x % LANES;
    auto read = [&](const bf16 *from, int part, int n) {
        if (n < first_position) return load_eight(from + cache + (size_t)n * HEAD + lane * 8);
        Eight eight;
        // Rounded as in the cache, so that a prompt gives the same result in one launch or in two.
        for (int k = 0; k < 8; k++)
            eight.at[k] = to_float(to_bf16(made(row.first + n - first_position, part, lane * 8 + k)));
        return eight;
    };
    auto keys = [&](int n) { return read(key_cache, 1, n); };
    auto values = [&](int n) { return read(value_cache, 2, n); };
    float maximum, total;
    attend(query, position + 1, keys, values, scores, result, &maximum, &total);
    if (threadIdx.x < HEAD)
        attended[(size_t)index * width + head * HEAD + threadIdx.x] = to_bf16(result[threadIdx.x] / total);
}

// The common body of `cross_attention` and `cross_attention_fp8`. Keys and values are multiplied by the slot's and
// head's entries of `key_scales` and `value_scales`.
template <typename Number>
__device__ inline void attend_to_audio(
    const Row *rows, const int *positions, const float *product, const float *bias, int heads,
    int audio_positions, const int *lengths, const Number *key_cache, const Number *value_cache,
    const float *key_scales, const float *value_scales, float *parts) {
    int index = blockIdx.x, head = blockIdx.y, width = heads * HEAD;
    if (positions[index] < 0) return;
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
    __syncthreads();
    cache = (cache * audio_positions + begin) * HEAD;
    int lane = threadIdx.x % LANES;
    auto keys = [&](int n) { return load_eight(key_cache + cache + (size_t)n * HEAD + lane * 8); };
    auto values = [&](int n) { return load_eight(value_cache + cache + (size_t)n * HEAD + lane * 8); };
    float maximum, total;
    attend(query, count, keys, values, scores, result, &maximum, &total);
    if (threadIdx.x < HEAD) part[threadIdx.x] = result[threadIdx.x] * value_scale;
    if (threadIdx.x == 0) {
        part[HEAD] = maximum;
        part[HEAD + 1] = total;
    }
}

// Cross-attention of each row over a part of its slot's audio. Grid (rows, heads, splits). `product`
// (rows, width) f32: queries without their `bias`. Caches (slots, heads, audio positions, 64), of which each slot
// has its own length. `parts` (rows, heads, splits, 66): sums, then the maximum, then the total.
extern "C" __global__ void cross_attention(
    const Row *rows, const int *positions, const float *product, const float *bias, int heads,
    int audio_positions, const int *lengths, const bf16 *key_cache, const bf16 *value_cache, float *parts) {
    const float *as_they_are = nullptr;
    attend_to_audio(
        rows, positions, product, bias, heads, audio_positions, lengths, key_cache, value_cache, as_they_are,
        as_they_are, parts);
}

// The same over caches in fp8, with their scales (slots, heads).
extern "C" __global__ void cross_attention_fp8(
    const Row *rows, const int *positions, const float *product, const float *bias, int heads,
    int audio_positions, const int *lengths, const fp8 *key_cache, const fp8 *value_cache, const float *key_scales,
    const float *value_scales, float *parts) {
    attend_to_audio(
        rows, positions, product, bias, heads, audio_positions, lengths, key_cache, value_cache, key_scales,
        value_scales, parts);
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
