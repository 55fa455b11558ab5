// The next token of each row from its logits: suppression, the grammar of timestamps, temperature; and the
// state of its slot after it. The twin of models/whisper/rules.rs, bias.rs and sequence.rs.

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

// Of two gains of one token: what is unwanted outweighs what is wanted.
__device__ inline float stronger(float one, float other) {
    return one < 0.0f || other < 0.0f ? fminf(one, other) : fmaxf(one, other);
}

// Calls `each` with what follows `place` or any of those it is otherwise: a thread with each of one, then all of
// the next one, so that none is in two threads' hands.
template <typename Each> __device__ inline void each_after(const Place *trie, int place, Each each) {
    while (true) {
        for (int n = trie[place].first + threadIdx.x; n < trie[place + 1].first; n += blockDim.x) each(trie[n]);
        __syncthreads();
        if (place == ANYWHERE) return;
        place = trie[place].otherwise;
    }
}

// Where `token` leads from `place`.
__device__ inline int place_after(const Place *trie, int place, int token) {
    while (true) {
        int from = trie[place].first, end = trie[place + 1].first, until = end;
        while (from < until) {
            int middle = (from + until) / 2;
            if (trie[middle].token < token)
                from = middle + 1;
            else
                until = middle;
        }
        if (from < end && trie[from].token == token) return from;
        if (place == ANYWHERE) return ANYWHERE;
        place = trie[place].otherwise;
    }
}

// One block of 1024 a row. `logits` (rows, vocabulary) f32. `suppressed` (vocabulary): bits. `tries` (slots,
// trie_size). `gains` (rows, vocabulary) f32: all 0, before and after.
extern "C" __global__ void choose(
    const Row *rows, const int *positions, const float *logits, const unsigned char *suppressed, int vocabulary,
    int end_of_text, int timestamp_begin, int initial_max, int no_speech, int text_positions,
    const Place *tries, int trie_size, float *gains, State *states, Outcome *outcomes) {
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

    // Gumbel-max: the arg-max of logits / t plus Gumbel noise is a sample of their softmax.
    auto scored = [&](float logit, int token) {
        if (state.temperature <= 0.0f) return logit;
        return logit / state.temperature - logf(-logf(uniform(state.seed, state.written, token)));
    };

    const Best NONE = {-INFINITE, 0x7fffffff};
    float raw_max = -INFINITE, word_max = -INFINITE, text_max = -INFINITE, time_max = -INFINITE;
    Best text = NONE, time = NONE;
    for (int token = threadIdx.x; token < vocabulary; token += blockDim.x) {
        float logit = own[token];
        raw_max = fmaxf(raw_max, logit);
        if (!is_allowed(token)) continue;
        if (token < end_of_text) word_max = fmaxf(word_max, logit);
        Best one = {scored(logit, token), token};
        if (token < timestamp_begin) {
            text_max = fmaxf(text_max, logit);
            text = better(text, one);
        } else {
            time_max = fmaxf(time_max, logit);
            time = better(time, one);
        }
    }
    raw_max = block_max(raw_max);
    word_max = block_max(word_max);
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
    float text_total = text_sum > 0.0f ? text_max + logf(text_sum) : -INFINITE;
    float time_total = time_sum > 0.0f ? time_max + logf(time_sum) : -INFINITE;
    // Where a timestamp as such is likelier than any one text token, it is a timestamp.
    bool is_time = time_total > text_max;

    // A term stands only where the likeliest token is a word. What it gains decides which token it is, and
    // nothing else: probabilities are those of before.
    const Place *trie = tries + (size_t)row.slot * trie_size;
    if (row.wanted & CHOOSE && state.place >= 0 && !is_time && word_max >= text_max && word_max >= time_max) {
        float *gained = gains + (size_t)blockIdx.x * vocabulary;
        each_after(trie, state.place, [&](const Place &next) {
            gained[next.token] = stronger(gained[next.token], next.gain);
        });
        text = NONE;
        for (int token = threadIdx.x; token < timestamp_begin; token += blockDim.x)
            if (is_allowed(token)) text = better(text, {scored(own[token] + gained[token], token), token});
        text = block_best(text);
        each_after(trie, state.place, [&](const Place &next) { gained[next.token] = 0.0f; });
    }
    if (threadIdx.x > 0) return;

    if (row.wanted & NO_SPEECH) outcome.no_speech = expf(own[no_speech] - raw_max - logf(raw_sum));
    if (row.wanted & CHOOSE) {
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
            if (state.place >= 0) state.place = is_timestamp ? FIRST : place_after(trie, state.place, token);
            state.written += 1;
            state.finished = state.written >= state.tokens_max || state.position >= text_positions;
        }
        outcome.finished = state.finished;
        states[row.slot] = state;
    }
    outcomes[blockIdx.x] = outcome;
}
