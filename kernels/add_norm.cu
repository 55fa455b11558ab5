// Adds the output of a block to the residual and normalises it for the next block: x += y + bias;
// normal = (x - mean) / deviation · gamma + beta, in f32, rounded at the end. `y` and `bias` may be null. One
// block of 256 a row, a width of at most 2048.
extern "C" __global__ void add_norm(
    const int *positions, float *x, const float *y, const float *bias, const float *gamma, const float *beta,
    int width, bf16 *normal) {
    if (positions[blockIdx.x] < 0) return;
    constexpr int EACH = 8;
    size_t row = (size_t)blockIdx.x * width;
    float values[EACH];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int n = threadIdx.x + k * blockDim.x;
        values[k] = 0.0f;
        if (n < width) {
            values[k] = x[row + n];
            if (y) values[k] += y[row + n];
            if (bias) values[k] += bias[n];
            if (y || bias) x[row + n] = values[k];
        }
        sum += values[k];
    }
    float mean = block_sum(sum) / width;
    sum = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        float centred = (int)(threadIdx.x + k * blockDim.x) < width ? values[k] - mean : 0.0f;
        sum += centred * centred;
    }
    float scale = rsqrtf(block_sum(sum) / width + 1e-5f);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int n = threadIdx.x + k * blockDim.x;
        if (n < width) normal[row + n] = to_bf16((values[k] - mean) * scale * gamma[n] + beta[n]);
    }
}

// gelu(x + bias), exact, as the model was trained with. Blocks of 256 in a grid (rows, width / 1024).
extern "C" __global__ void bias_gelu(
    const int *positions, const float *x, const float *bias, int width, bf16 *y) {
    if (positions[blockIdx.x] < 0) return;
    size_t row = (size_t)blockIdx.x * width;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int n = blockIdx.y * 4 * blockDim.x + k * blockDim.x + threadIdx.x;
        if (n >= width) return;
        float value = x[row + n] + (bias ? bias[n] : 0.0f);
        y[row + n] = to_bf16(0.5f * value * (1.0f + erff(value * 0.70710678f)));
    }
}
