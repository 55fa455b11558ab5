// Log-mel features of a batch of windows; the twin of models/whisper/features.rs.

constexpr int FFT = 400;
constexpr int HOP = 160;
constexpr int BINS = FFT / 2 + 1;
// Frames of one block: each factor of the transform is read once for all of them.
constexpr int FRAMES = 8;
constexpr int MEL_THREADS = 256;

// Maps floats to ints of the same order, for atomicMax.
__device__ inline int ordered(float value) {
    int bits = __float_as_int(value);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

__device__ inline float unordered(int bits) {
    return __int_as_float(bits ^ (bits >> 31 & 0x7fffffff));
}

// log10 of the energy of each band, not below -10: (windows, bands, frames) f32, of which the first
// counts[window] / 160 frames are written; and each window's maximum, as an ordered int, in `maxima`. Grid
// (frames / 8, windows), blocks of 256. `samples` (windows, stride) i16; `hann` (400); `cosines` and `sines`
// (400) of one turn; `firsts`, `widths`, `starts` (bands): first bin, bins and offset in `weights` of each filter.
extern "C" __global__ void log_mel(
    const short *samples, int stride, const int *counts, const float *hann, const float *cosines,
    const float *sines, const int *firsts, const int *widths, const int *starts, const float *weights, int bands,
    int frames, int *maxima, float *features) {
    // For a frame x: x[n] + x[400 - n] and x[n] - x[400 - n], as cosine is even and sine is odd.
    __shared__ float even[FRAMES][FFT / 2 + 1], odd[FRAMES][FFT / 2 + 1], power[FRAMES][BINS];
    __shared__ float turn[2][FFT];
    int window = blockIdx.y, first = blockIdx.x * FRAMES;
    int count = counts[window];
    int whole = min(count / HOP, frames);
    if (first >= whole) return;
    const short *audio = samples + (size_t)window * stride;
    for (int n = threadIdx.x; n < FFT; n += MEL_THREADS) {
        turn[0][n] = cosines[n];
        turn[1][n] = sines[n];
    }
    // Frames are centred: the first begins half a window before the audio, where it is reflected.
    auto sample = [&](int frame, int n) {
        int index = abs((first + frame) * HOP - FFT / 2 + n);
        return index < count ? audio[index] * (1.0f / 32768.0f) * hann[n] : 0.0f;
    };
    for (int cell = threadIdx.x; cell < FRAMES * (FFT / 2 + 1); cell += MEL_THREADS) {
        int frame = cell / (FFT / 2 + 1), n = cell % (FFT / 2 + 1);
        float left = sample(frame, n);
        // The first and the middle have no partner.
        float right = n == 0 || n == FFT / 2 ? 0.0f : sample(frame, FFT - n);
        even[frame][n] = left + right;
        odd[frame][n] = left - right;
    }
    __syncthreads();
    int bin = threadIdx.x;
    if (bin < BINS) {
        float real[FRAMES] = {}, imaginary[FRAMES] = {};
        int angle = 0;
        for (int n = 0; n <= FFT / 2; n++) {
            float cosine = turn[0][angle], sine = turn[1][angle];
#pragma unroll
            for (int frame = 0; frame < FRAMES; frame++) {
                real[frame] += even[frame][n] * cosine;
                imaginary[frame] += odd[frame][n] * sine;
            }
            angle += bin;
            if (angle >= FFT) angle -= FFT;
        }
#pragma unroll
        for (int frame = 0; frame < FRAMES; frame++)
            power[frame][bin] = real[frame] * real[frame] + imaginary[frame] * imaginary[frame];
    }
    __syncthreads();
    float largest = -INFINITE;
    for (int cell = threadIdx.x; cell < FRAMES * bands; cell += MEL_THREADS) {
        int band = cell / FRAMES, frame = cell % FRAMES;
        if (first + frame >= whole) continue;
        float energy = 0.0f;
        for (int n = 0; n < widths[band]; n++) energy += weights[starts[band] + n] * power[frame][firsts[band] + n];
        float value = log10f(fmaxf(energy, 1e-10f));
        features[((size_t)window * bands + band) * frames + first + frame] = value;
        largest = fmaxf(largest, value);
    }
    largest = block_max(largest);
    if (threadIdx.x == 0) atomicMax(maxima + window, ordered(largest));
}

// Clamps each window at 8 below its maximum, scales it, and fills the frames behind the audio with 0, the value of
// padding, in place. Grid (frames / 256, bands, windows), blocks of 256.
extern "C" __global__ void clamp_mel(const int *counts, const int *maxima, int frames, float *features) {
    int window = blockIdx.z, frame = blockIdx.x * blockDim.x + threadIdx.x;
    if (frame >= frames) return;
    float *cell = features + ((size_t)window * gridDim.y + blockIdx.y) * frames + frame;
    float floor = unordered(maxima[window]) - 8.0f;
    *cell = frame < counts[window] / HOP ? (fmaxf(*cell, floor) + 4.0f) / 4.0f : 0.0f;
}
