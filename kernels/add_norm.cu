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

// The same in the encoder, where the output of a block is bf16 and has its bias: x += y; normal = norm of x. `y` may be
// null. One block of 256 a row, a width of at most 2048 that is a multiple of 4, rows on boundaries of 16 bytes.
extern "C" __global__ void encoder_norm(
    float *x, const bf16 *y, const float *gamma, const float *beta, int width, bf16 *normal) {
    constexpr int EACH = 2;
    size_t row = (size_t)blockIdx.x * width;
    float4 values[EACH];
    uint2 added[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int n = 4 * (threadIdx.x + k * blockDim.x);
        values[k] = n < width ? *(const float4 *)(x + row + n) : float4{0.0f, 0.0f, 0.0f, 0.0f};
        added[k] = y && n < width ? *(const uint2 *)(y + row + n) : uint2{0, 0};
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        values[k].x += __uint_as_float(added[k].x << 16);
        values[k].y += __uint_as_float(added[k].x & 0xffff0000u);
        values[k].z += __uint_as_float(added[k].y << 16);
        values[k].w += __uint_as_float(added[k].y & 0xffff0000u);
        int n = 4 * (threadIdx.x + k * blockDim.x);
        if (y && n < width) *(float4 *)(x + row + n) = values[k];
        sum += values[k].x + values[k].y + values[k].z + values[k].w;
    }
    float mean = block_sum(sum) / width;
    sum = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (4 * (int)(threadIdx.x + k * blockDim.x) >= width) continue;
        float4 centred = {values[k].x - mean, values[k].y - mean, values[k].z - mean, values[k].w - mean};
        sum += centred.x * centred.x + centred.y * centred.y + centred.z * centred.z + centred.w * centred.w;
    }
    float scale = rsqrtf(block_sum(sum) / width + 1e-5f);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int n = 4 * (threadIdx.x + k * blockDim.x);
        if (n >= width) continue;
        float4 by = *(const float4 *)(gamma + n), plus = *(const float4 *)(beta + n);
        bf16 low = to_bf16((values[k].x - mean) * scale * by.x + plus.x);
        bf16 second = to_bf16((values[k].y - mean) * scale * by.y + plus.y);
        bf16 third = to_bf16((values[k].z - mean) * scale * by.z + plus.z);
        bf16 high = to_bf16((values[k].w - mean) * scale * by.w + plus.w);
        *(uint2 *)(normal + row + n) = {low | (unsigned)second << 16, third | (unsigned)high << 16};
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
