// The next token of each row from its logits: suppression, the grammar of timestamps, temperature; and the
// state of its slot after it. The twin of models/whisper/rules.rs and sequence.rs.

// Bits of `suppressed`.
constexpr unsigned char NEVER = 1;
constexpr unsigned char NOT_FIRST = 2;

// A uniform number in (0, 1) for one token of one step of one attempt, the same whatever else is in the batch:
// SplitMix64 (Steele, Lea and Flood, 2014) of all three.
__device__ inline float uniform(unsigned seed, int written, int token) {
    unsigned long long z =
        ((unsigned long long)seed << 32 | (unsigned)token) + 0x9e3779b97f4a7c15ull * (unsigned)(written + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return ((unsigned)((z ^ (z >> 31)) >> 41) + 0.5f) * (1.0f / 8388608.0f);
}

struct Best {
    float score;
    int token;
};

// The higher score, of equal ones the lower token.
__device__ inline Best better(Best a, Best b) {
    return b.score > a.score || (b.score == a.score && b.token < a.token) ? b : a;
}

// In every thread.
__device__ inline Best block_best(Best best) {
    __shared__ Best parts[32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int round = 0; round < 2; round++) {
        for (int offset = 16; offset > 0; offset /= 2) {
            Best other = {
                __shfl_xor_sync(0xffffffffu, best.score, offset), __shfl_xor_sync(0xffffffffu, best.token, offset)};
            best = better(best, other);
        }
        if (round == 0) {
            if (lane == 0) parts[threadIdx.x / 32] = best;
            __syncthreads();
            best = lane < warps ? parts[lane] : Best{-INFINITE, 0x7fffffff};
        }
    }
    __syncthreads();
    return best;
}

// One block of 1024 a row. `logits` (rows, vocabulary) f32. `suppressed` (vocabulary): bits.
extern "C" __global__ void choose(
    const Row *rows, const int *positions, const float *logits, const unsigned char *suppressed, int vocabulary,
    int end_of_text, int timestamp_begin, int initial_max, int no_speech, int text_positions, State *states,
    Outcome *outcomes) {
    Row row = rows[blockIdx.x];
    Outcome outcome = {-1, 0, 0.0f, 0.0f, 0.0f};
    if (positions[blockIdx.x] < 0 || row.wanted == 0) {
        if (threadIdx.x == 0) outcomes[blockIdx.x] = outcome;
        return;
    }
    // Thread 0 writes it at the end, when all have read it: reductions lie between.
    State state = states[row.slot];
    const float *own = logits + (size_t)blockIdx.x * vocabulary;

    // Every token is text or a timestamp; of both, those of [from, until) may be written.
    int text_from = 0, text_until = timestamp_begin, time_from = timestamp_begin, time_until = vocabulary;
    if (state.last_is_timestamp && state.before_is_timestamp) {
        time_until = timestamp_begin;
    } else if (state.last_is_timestamp) {
        text_from = end_of_text;
    }
    if (state.last_timestamp >= 0) {
        bool closes = state.last_is_timestamp && !state.before_is_timestamp;
        time_from = max(time_from, state.last_timestamp + (closes ? 0 : 1));
    }
    if (state.written == 0) {
        text_until = 0;
        time_until = min(time_until, initial_max + 1);
    }
    unsigned char bits = state.written == 0 ? NEVER | NOT_FIRST : NEVER;
    auto is_allowed = [&](int token) {
        if (suppressed[token] & bits) return false;
        if (state.forced && token == end_of_text) return false;
        return token < timestamp_begin ? token >= text_from && token < text_until
                                       : token >= time_from && token < time_until;
    };

    float raw_max = -INFINITE, text_max = -INFINITE, time_max = -INFINITE;
    Best text = {-INFINITE, 0x7fffffff}, time = text;
    for (int token = threadIdx.x; token < vocabulary; token += blockDim.x) {
        float logit = own[token];
        raw_max = fmaxf(raw_max, logit);
        if (!is_allowed(token)) continue;
        float score = logit;
        if (state.temperature > 0.0f)
            // Gumbel-max: the arg-max of logits / t plus Gumbel noise is a sample of their softmax.
            score = logit / state.temperature - logf(-logf(uniform(state.seed, state.written, token)));
        if (token < timestamp_begin) {
            text_max = fmaxf(text_max, logit);
            text = better(text, {score, token});
        } else {
            time_max = fmaxf(time_max, logit);
            time = better(time, {score, token});
        }
    }
    raw_max = block_max(raw_max);
    text_max = block_max(text_max);
    time_max = block_max(time_max);
    text = block_best(text);
    time = block_best(time);

    float raw_sum = 0.0f, raw_text_sum = 0.0f, text_sum = 0.0f, time_sum = 0.0f;
    for (int token = threadIdx.x; token < vocabulary; token += blockDim.x) {
        float logit = own[token];
        float raw = expf(logit - raw_max);
        raw_sum += raw;
        if (token < end_of_text) raw_text_sum += raw;
        if (is_allowed(token)) {
            if (token < timestamp_begin)
                text_sum += expf(logit - text_max);
            else
                time_sum += expf(logit - time_max);
        }
    }
    raw_sum = block_sum(raw_sum);
    raw_text_sum = block_sum(raw_text_sum);
    text_sum = block_sum(text_sum);
    time_sum = block_sum(time_sum);
    if (threadIdx.x > 0) return;

    if (row.wanted & NO_SPEECH) outcome.no_speech = expf(own[no_speech] - raw_max - logf(raw_sum));
    if (row.wanted & CHOOSE) {
        float text_total = text_sum > 0.0f ? text_max + logf(text_sum) : -INFINITE;
        float time_total = time_sum > 0.0f ? time_max + logf(time_sum) : -INFINITE;
        // Where a timestamp as such is likelier than any one text token, it is a timestamp.
        bool is_time = time_total > text_max;
        Best best = is_time ? time : better(text, time);
        float largest = fmaxf(text_total, time_total);
        float total =
            is_time ? time_total : largest + logf(expf(text_total - largest) + expf(time_total - largest));
        // Nothing is allowed, or the logits are no numbers: the attempt ends.
        int token = best.token < vocabulary ? best.token : end_of_text;
        outcome.token = token;
        outcome.log_probability = own[token] - total;
        outcome.probability = fminf(expf(own[token] - raw_max - logf(raw_text_sum)), 1.0f);
        if (token == end_of_text) {
            state.finished = 1;
        } else {
            bool is_timestamp = token >= timestamp_begin;
            state.token = token;
            state.position = positions[blockIdx.x] + 1;
            state.before_is_timestamp = state.written == 0 || state.last_is_timestamp;
            state.last_is_timestamp = is_timestamp;
            if (is_timestamp) state.last_timestamp = token;
            state.written += 1;
            state.finished = state.written >= state.tokens_max || state.position >= text_positions;
        }
        outcome.finished = state.finished;
        states[row.slot] = state;
    }
    outcomes[blockIdx.x] = outcome;
}
