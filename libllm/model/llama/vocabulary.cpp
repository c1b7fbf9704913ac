/* vocabulary.cpp: tries all uses of the vocabulary once while a model is opened. A failed assertion then only refuses
 * the model (crash.h). If it failed later, in a text thread, it would end the process in the middle of a request. */
#include <algorithm>

#include "model/llama/llama_model.h"

extern "C" {}

namespace {

constexpr uint32_t TEXT_BYTES_MAX = 1 << 20; /* limit on the bytes of a control token's text */
constexpr int N_BYTES = 256;

void try_text(const llama_vocab *vocab, const std::string &text)
{
    std::vector<llama_token> tokens(2 * text.size() + 8);
    for (const bool special : {false, true}) {
        const int32_t n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                                         static_cast<int32_t>(tokens.size()), special, special);
        for (int32_t i = 0; i < n; i++) {
            if (tokens[i] < 0 || tokens[i] >= llama_vocab_n_tokens(vocab)) {
                throw std::runtime_error("its tokenizer returns the token id " + std::to_string(tokens[i]) +
                                         ", but its vocabulary has only " +
                                         std::to_string(llama_vocab_n_tokens(vocab)) + " tokens");
            }
        }
    }
}

/* Tokenizes every single byte, then a text with words, digits, several scripts, and blanks of all kinds. */
void try_texts(const llama_vocab *vocab)
{
    for (int i = 0; i < N_BYTES; i++) {
        try_text(vocab, std::string(1, static_cast<char>(i)));
    }
    try_text(vocab, "");
    try_text(vocab, "Hello, world! It's 12345.678 o'clock\r\n\t  \xc3\xa9\xc3\x9f \xe4\xb8\xad\xe6\x96\x87 \xd8\xb9 "
                    "\xf0\x9f\x98\x80\xe2\x80\x8d\xc2\xa0\xff\xfe <|im_end|></s>");
}

void try_pieces(const llama_vocab *vocab)
{
    std::vector<char> piece(TEXT_BYTES_MAX);
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        for (const bool special : {false, true}) {
            const int32_t n = llama_token_to_piece(vocab, token, piece.data(), TEXT_BYTES_MAX, 0, special);
            const int32_t most = special ? static_cast<int32_t>(TEXT_BYTES_MAX) : MODEL_PIECE_BYTES_MAX;
            if (n < 0 || n > most) {
                throw std::runtime_error("the text of its token " + std::to_string(token) + " is longer than " +
                                         std::to_string(most) + " bytes");
            }
        }
        llama_vocab_is_eog(vocab, token);
        llama_vocab_get_attr(vocab, token);
    }
}

} // namespace

void model_llama_vocabulary_check(const llama_vocab *vocab)
{
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE || llama_vocab_n_tokens(vocab) < 1) {
        throw std::runtime_error("it has no vocabulary");
    }
    if (llama_vocab_get_add_bos(vocab) && llama_vocab_bos(vocab) == LLAMA_TOKEN_NULL) {
        throw std::runtime_error("its texts begin with a token whose id is missing (tokenizer.ggml.bos_token_id)");
    }
    if (llama_vocab_get_add_eos(vocab) && llama_vocab_eos(vocab) == LLAMA_TOKEN_NULL) {
        throw std::runtime_error("its texts end with a token whose id is missing (tokenizer.ggml.eos_token_id)");
    }
    try {
        try_pieces(vocab);
        try_texts(vocab);
    } catch (const std::logic_error &e) { /* a look-up in one of llama.cpp's tables failed */
        throw std::runtime_error(std::string("its vocabulary contradicts itself (") + e.what() + ")");
    }
}
