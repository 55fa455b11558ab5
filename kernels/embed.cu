// Writes token plus position embeddings to the residual. One block a row. Also writes each row's position to
// `positions`, below 0 for empty rows, for the kernels that follow.
extern "C" __global__ void embed(
    const Row *rows, const State *states, const bf16 *tokens, const float *position_embeddings, int width,
    int vocabulary, int text_positions, int *positions, float *x) {
    Row row = rows[blockIdx.x];
    int token = -1, position = -1;
    if (row.slot >= 0) {
        const State *state = states + row.slot;
        bool is_given = row.token >= 0;
        token = is_given ? row.token : state->token;
        position = is_given ? row.position : state->finished ? -1 : state->position;
    }
    if (token < 0 || token >= vocabulary || position >= text_positions) position = -1;
    if (threadIdx.x == 0) positions[blockIdx.x] = position;
    const bf16 *embedding = tokens + (position < 0 ? 0 : (size_t)token * width);
    const float *position_embedding = position_embeddings + (position < 0 ? 0 : (size_t)position * width);
    for (int n = threadIdx.x; n < width; n += blockDim.x)
        x[(size_t)blockIdx.x * width + n] = position < 0 ? 0.0f : to_float(embedding[n]) + position_embedding[n];
}
