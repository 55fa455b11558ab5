// Chooses the next token of each row from its logits (suppression, the grammar of timestamps, terms, temperature) and
// updates the state of its slot. The twin of models/whisper/rules.rs, bias/search.rs and sequence.rs.

// Bits of `suppressed`.
constexpr unsigned char NEVER = 1;
constexpr unsigned char NOT_FIRST = 2;
// The token continues the word before it.
constexpr unsigned char CONTINUES = 4;

// The most terms that an attempt takes back, as in models/whisper/bias/search.rs.
constexpr int RETURNS_MAX = 64;

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

// The higher score; among equal ones the lower token.
__device__ inline Best better(Best a, Best b) {
    return b.score > a.score || (b.score == a.score && b.token < a.token) ? b : a;
}

// Returns the best to every thread.
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

// Calls `each` with the index of every follower of `node`, each in one thread.
template <typename Each> __device__ inline void each_following(const TrieNode *trie, int node, Each each) {
    for (int n = trie[node].first + threadIdx.x; n < trie[node + 1].first; n += blockDim.x) each(n);
}

// The same for `node` and its chain of `otherwise`; `each` also gets the node. One node's followers come after
// another's, so that no two threads handle the same token at once.
template <typename Each> __device__ inline void each_reached(const TrieNode *trie, int node, Each each) {
    while (true) {
        each_following(trie, node, [&](int next) { each(node, next); });
        __syncthreads();
        if (node == ANYWHERE) return;
        node = trie[node].otherwise;
    }
}

// The follower of `node` with `token`; below 0 if there is none.
__device__ inline int child(const TrieNode *trie, int node, int token) {
    int from = trie[node].first, end = trie[node + 1].first, until = end;
    while (from < until) {
        int middle = (from + until) / 2;
        if (trie[middle].token < token)
            from = middle + 1;
        else
            until = middle;
    }
    return from < end && trie[from].token == token ? from : -1;
}

// The node after `token` at `node`.
__device__ inline int node_after(const TrieNode *trie, int node, int token) {
    while (true) {
        int next = child(trie, node, token);
        if (next >= 0) return next;
        if (node == ANYWHERE) return ANYWHERE;
        node = trie[node].otherwise;
    }
}

// Whether a term that begins with `token` ends at `node` or in its chain of `otherwise`.
__device__ inline bool ends_with(const TrieNode *trie, int node, int token) {
    while (true) {
        if (trie[node].opening == token) return true;
        if (node == ANYWHERE) return false;
        node = trie[node].otherwise;
    }
}

// One block of 1024 a row. `logits` (rows, vocabulary) f32. `suppressed` (vocabulary): bits. `tries` (slots,
// trie_size). `gains` (rows, vocabulary) f32: all 0, before and after.
// The bound keeps the registers of so many threads within those that a block can have.
extern "C" __global__ void __launch_bounds__(1024) choose(
    const Row *rows, const int *positions, const float *logits, const unsigned char *suppressed, int vocabulary,
    int end_of_text, int timestamp_begin, int initial_max, int no_speech, int text_positions,
    const TrieNode *tries, int trie_size, float *gains, State *states, Outcome *outcomes) {
    Row row = rows[blockIdx.x];
    Outcome outcome = {-1, 0, 0, 0.0f, 0.0f, 0.0f};
    if (positions[blockIdx.x] < 0 || row.wanted == 0) {
        if (threadIdx.x == 0) outcomes[blockIdx.x] = outcome;
        return;
    }
    // Thread 0 writes it at the end, after reductions in which all threads have synchronised.
    State state = states[row.slot];
    const float *own = logits + (size_t)blockIdx.x * vocabulary;

    // Every token is text or a timestamp; of each kind, those in [from, until) may be written.
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
    float raw_max = -INFINITE, word_max = -INFINITE;
    Best text_peak = NONE, time_peak = NONE, text = NONE, time = NONE;
    for (int token = threadIdx.x; token < vocabulary; token += blockDim.x) {
        float logit = own[token];
        raw_max = fmaxf(raw_max, logit);
        if (!is_allowed(token)) continue;
        if (token < end_of_text) word_max = fmaxf(word_max, logit);
        Best likely = {logit, token}, drawn = {scored(logit, token), token};
        if (token < timestamp_begin) {
            text_peak = better(text_peak, likely);
            text = better(text, drawn);
        } else {
            time_peak = better(time_peak, likely);
            time = better(time, drawn);
        }
    }
    raw_max = block_max(raw_max);
    word_max = block_max(word_max);
    text_peak = block_best(text_peak);
    time_peak = block_best(time_peak);
    text = block_best(text);
    time = block_best(time);
    float text_max = text_peak.score, time_max = time_peak.score;

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
    // If timestamps together are likelier than any single text token, force a timestamp.
    bool is_time = time_total > text_max;

    // Probabilities are computed without the effect of terms.
    float largest = fmaxf(text_total, time_total);
    float total = is_time ? time_total : largest + logf(expf(text_total - largest) + expf(time_total - largest));
    auto log_probability = [&](int token) { return own[token] - total; };
    auto probability = [&](int token) { return fminf(expf(own[token] - raw_max - logf(raw_text_sum)), 1.0f); };

    const TrieNode *trie = tries + (size_t)row.slot * trie_size;
    float *gained = gains + (size_t)blockIdx.x * vocabulary;
    bool terms = row.wanted & CHOOSE && state.node >= 0;
    bool penalised = terms && !is_time && word_max >= text_max && word_max >= time_max;
    if (penalised) {
        each_reached(trie, state.node, [&](int, int next) {
            float gain = trie[next].gain;
            if (gain < 0.0f) gained[trie[next].token] = fminf(gained[trie[next].token], gain);
        });
        text_peak = text = NONE;
        for (int token = threadIdx.x; token < timestamp_begin; token += blockDim.x) {
            if (!is_allowed(token)) continue;
            float logit = own[token] + gained[token];
            text_peak = better(text_peak, {logit, token});
            text = better(text, {scored(logit, token), token});
        }
        text_peak = block_best(text_peak);
        text = block_best(text);
    }
    Best peak = is_time ? time_peak : better(text_peak, time_peak);
    Best best = is_time ? time : better(text, time);
    // No token is allowed, or the logits are NaN: the attempt ends.
    int token = best.token < vocabulary ? best.token : end_of_text;
    bool is_back = false;
    if (terms) {
        bool peak_is_word = peak.token < end_of_text;
        bool is_settled = false;
        auto logit = [&](int token) {
            return is_allowed(token) ? own[token] + (penalised ? gained[token] : 0.0f) : -INFINITE;
        };
        if (state.trial_written >= 0) {
            bool ends = trie[state.trial_node].opening >= 0;
            Best further = NONE;
            if (peak_is_word) {
                // A complete term yields to a longer one only if that is likeliest.
                each_following(trie, state.trial_node, [&](int next) {
                    int token = trie[next].token;
                    bool fits = state.trial_loss + peak.score - logit(token) <= trie[next].gain;
                    if (fits && (!ends || token == peak.token)) further = better(further, {logit(token), token});
                });
            }
            further = block_best(further);
            if (further.token < vocabulary) {
                is_settled = true;
                token = further.token;
                state.trial_loss += peak.score - further.score;
                state.trial_node = child(trie, state.trial_node, token);
            } else if (!ends || (peak.token < vocabulary && suppressed[peak.token] & CONTINUES)) {
                // A complete term must not turn out to begin another word.
                is_settled = is_back = true;
            } else {
                state.trial_written = -1;
            }
        }
        if (!is_settled && peak_is_word && token < end_of_text && state.returns < RETURNS_MAX) {
            Best found = NONE;
            float is_own = 0.0f;
            each_reached(trie, state.node, [&](int node, int index) {
                TrieNode next = trie[index];
                if (next.gain <= 0.0f) return;
                if (next.token == token) is_own = 1.0f;
                // Do not repeat a term that was just written.
                bool repeats = node <= FIRST && ends_with(trie, state.node, next.token);
                float one = logit(next.token);
                if (peak.score - one <= next.gain && !repeats) found = better(found, {one, next.token});
            });
            is_own = block_max(is_own);
            found = block_best(found);
            if (is_own == 0.0f && found.token < vocabulary) {
                float loss = peak.score - found.score;
                int node = state.node, next = child(trie, node, found.token);
                while (node != ANYWHERE && (next < 0 || loss > trie[next].gain)) {
                    node = trie[node].otherwise;
                    next = child(trie, node, found.token);
                }
                state.trial_written = state.written;
                state.trial_node = next;
                state.trial_loss = loss;
                state.before_node = state.node;
                state.before_trial_is_timestamp = state.last_is_timestamp;
                state.instead = token;
                state.instead_position = positions[blockIdx.x] + 1;
                state.instead_log_probability = log_probability(token);
                state.instead_probability = probability(token);
                token = found.token;
            }
        }
        if (penalised)
            each_reached(trie, state.node, [&](int, int next) { gained[trie[next].token] = 0.0f; });
    }
    if (threadIdx.x > 0) return;

    if (row.wanted & NO_SPEECH) outcome.no_speech = expf(own[no_speech] - raw_max - logf(raw_sum));
    if (row.wanted & CHOOSE) {
        int position = positions[blockIdx.x] + 1;
        outcome.log_probability = log_probability(token);
        outcome.probability = probability(token);
        if (is_back) {
            token = state.instead;
            position = state.instead_position;
            outcome.log_probability = state.instead_log_probability;
            outcome.probability = state.instead_probability;
            state.written = state.trial_written;
            state.node = state.before_node;
            state.last_is_timestamp = state.before_trial_is_timestamp;
            state.trial_written = -1;
            state.returns += 1;
        }
        outcome.token = token;
        outcome.written = state.written;
        if (token == end_of_text) {
            state.finished = 1;
        } else {
            bool is_timestamp = token >= timestamp_begin;
            state.token = token;
            state.position = position;
            state.before_is_timestamp = state.written == 0 || state.last_is_timestamp;
            state.last_is_timestamp = is_timestamp;
            if (is_timestamp) state.last_timestamp = token;
            if (state.node >= 0) state.node = is_timestamp ? FIRST : node_after(trie, state.node, token);
            state.written += 1;
            state.finished = state.written >= state.tokens_max || state.position >= text_positions;
        }
        outcome.finished = state.finished;
        states[row.slot] = state;
    }
    outcomes[blockIdx.x] = outcome;
}
