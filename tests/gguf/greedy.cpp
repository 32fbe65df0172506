// What llama.cpp says after token ids that are given as numbers: COUNT lines, each the likeliest
// next token and all logits. Keys, values and sums in 32 bits.
//
//     greedy MODEL COUNT id id id ...
//
// tests/gguf/llama_cpp.py compiles it against a built llama.cpp and compares.
#include "llama.h"
#include <cstdio>
#include <cstdlib>
#include <vector>
static void errors_only(enum ggml_log_level level, const char *text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}
int main(int argc, char **argv) {
    llama_log_set(errors_only, nullptr);
    std::vector<llama_token> ids;
    for (int i = 3; i < argc; i++) ids.push_back(atoi(argv[i]));
    auto mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model) { fprintf(stderr, "can't load\n"); return 1; }
    auto cp = llama_context_default_params();
    cp.n_ctx = 256; cp.n_batch = 256; cp.n_ubatch = 256; cp.n_threads = 1; cp.n_threads_batch = 1;
    cp.type_k = GGML_TYPE_F32; cp.type_v = GGML_TYPE_F32;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *ctx = llama_init_from_model(model, cp);
    if (!ctx) { fprintf(stderr, "no context\n"); return 1; }
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_batch batch = llama_batch_get_one(ids.data(), (int) ids.size());
    llama_token next;
    for (int i = 0; i < atoi(argv[2]); i++) {
        if (llama_decode(ctx, batch)) { fprintf(stderr, "decode\n"); return 1; }
        float *logits = llama_get_logits_ith(ctx, -1);
        next = 0;
        for (int v = 1; v < n_vocab; v++) if (logits[v] > logits[next]) next = v;
        printf("%d", next);
        for (int v = 0; v < n_vocab; v++) printf(" %.9g", logits[v]);
        printf("\n");
        batch = llama_batch_get_one(&next, 1);
    }
    return 0;
}
