// From the scores of alignment heads that `cross_attention` kept to the costs of dynamic time warping, as
// `AlignmentWeights::costs` in src/models/whisper: the softmax of each row, each column standardised over the rows, the
// median filter along the positions, and the negative mean over the heads. Every sum is in a fixed order.

// Some rows of a slot. Mirrors `Alignment` in src/cuda/layout.rs.
struct Alignment {
    int slot;
    // Audio positions that are no padding, at least 1; the costs have as many columns.
    int positions;
    int rows;
    // Its first row among those of all requests.
    int first;
    // Where its costs (rows, positions) begin.
    int costs;
};

constexpr int MEDIAN_WIDTH = 7;
constexpr int MEDIAN_HALF = MEDIAN_WIDTH / 2;

// The kept scores of one row. `text_positions` has a position for each row of all requests.
__device__ inline const float *kept_row(
    Alignment request, const int *text_positions, const float *kept, int heads, int head, int audio_positions,
    int row) {
    int of = text_positions[request.first + row] % KEPT_ROWS;
    return kept + (((size_t)request.slot * heads + head) * KEPT_ROWS + of) * audio_positions;
}

// The maximum of each row's scores and the sum of their exponentials: `softmax` (all rows, heads, 2). Grid
// (most rows of a request, heads, requests).
extern "C" __global__ void alignment_rows(
    const Alignment *requests, const int *text_positions, const float *kept, int audio_positions, float *softmax) {
    Alignment request = requests[blockIdx.z];
    int row = blockIdx.x, head = blockIdx.y, heads = gridDim.y;
    if (row >= request.rows) return;
    const float *scores = kept_row(request, text_positions, kept, heads, head, audio_positions, row);
    float largest = -INFINITE;
    for (int n = threadIdx.x; n < request.positions; n += blockDim.x) largest = fmaxf(largest, scores[n]);
    largest = block_max(largest);
    float sum = 0.0f;
    for (int n = threadIdx.x; n < request.positions; n += blockDim.x) sum += expf(scores[n] - largest);
    sum = block_sum(sum);
    if (threadIdx.x > 0) return;
    float *of = softmax + ((size_t)(request.first + row) * heads + head) * 2;
    of[0] = largest;
    of[1] = sum;
}

// Mean of each column and the inverse of its deviation: `columns` (requests, heads, 2, audio positions). Grid
// (audio positions / 128, heads, requests), blocks of 128.
extern "C" __global__ void alignment_columns(
    const Alignment *requests, const int *text_positions, const float *kept, int audio_positions,
    const float *softmax, float *columns) {
    Alignment request = requests[blockIdx.z];
    int head = blockIdx.y, heads = gridDim.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= request.positions) return;
    auto weight = [&](int row) {
        const float *scores = kept_row(request, text_positions, kept, heads, head, audio_positions, row);
        const float *of = softmax + ((size_t)(request.first + row) * heads + head) * 2;
        return expf(scores[column] - of[0]) / of[1];
    };
    float mean = 0.0f;
#pragma unroll 4
    for (int row = 0; row < request.rows; row++) mean += weight(row);
    mean /= request.rows;
    float square = 0.0f;
#pragma unroll 4
    for (int row = 0; row < request.rows; row++) {
        float centred = weight(row) - mean;
        square += centred * centred;
    }
    float *of = columns + ((size_t)blockIdx.z * heads + head) * 2 * audio_positions + column;
    of[0] = mean;
    of[audio_positions] = 1.0f / fmaxf(sqrtf(square / request.rows), 1e-12f);
}

__device__ inline void in_order(float &low, float &high) {
    float larger = fmaxf(low, high);
    low = fminf(low, high);
    high = larger;
}

// The median of `n` by 13 exchanges (Devillard, Fast median search, 1998).
__device__ inline float median(float (&n)[MEDIAN_WIDTH]) {
    in_order(n[0], n[5]), in_order(n[0], n[3]), in_order(n[1], n[6]), in_order(n[2], n[4]);
    in_order(n[0], n[1]), in_order(n[3], n[5]), in_order(n[2], n[6]), in_order(n[2], n[3]);
    in_order(n[3], n[6]), in_order(n[4], n[5]), in_order(n[1], n[4]), in_order(n[1], n[3]);
    in_order(n[3], n[4]);
    return n[3];
}

// The costs. Grid (audio positions / 256, most rows of a request, requests), blocks of 256.
extern "C" __global__ void alignment_costs(
    const Alignment *requests, const int *text_positions, const float *kept, int audio_positions,
    const float *softmax, const float *columns, int heads, float *costs) {
    constexpr int POSITIONS = 256;
    __shared__ float normal[POSITIONS + 2 * MEDIAN_HALF];
    Alignment request = requests[blockIdx.z];
    int row = blockIdx.y, begin = blockIdx.x * POSITIONS, last = request.positions - 1;
    if (row >= request.rows || begin > last) return;
    float cost = 0.0f;
    for (int head = 0; head < heads; head++) {
        const float *scores = kept_row(request, text_positions, kept, heads, head, audio_positions, row);
        const float *own = softmax + ((size_t)(request.first + row) * heads + head) * 2;
        const float *column = columns + ((size_t)blockIdx.z * heads + head) * 2 * audio_positions;
        for (int n = threadIdx.x; n < POSITIONS + 2 * MEDIAN_HALF; n += blockDim.x) {
            // Reflected at both ends. Behind the last position's neighbourhood nothing is read.
            int at = begin + n - MEDIAN_HALF;
            if (at < 0) at = -at;
            if (at > last) at = 2 * last - at;
            if (at < 0 || at > last) continue;
            normal[n] = (expf(scores[at] - own[0]) / own[1] - column[at]) * column[audio_positions + at];
        }
        __syncthreads();
        float window[MEDIAN_WIDTH];
#pragma unroll
        for (int n = 0; n < MEDIAN_WIDTH; n++) window[n] = normal[threadIdx.x + n];
        // Too short to be filtered.
        cost -= last < MEDIAN_HALF ? window[MEDIAN_HALF] : median(window);
        __syncthreads();
    }
    int position = begin + threadIdx.x;
    if (position <= last) costs[request.costs + (size_t)row * request.positions + position] = cost / heads;
}
