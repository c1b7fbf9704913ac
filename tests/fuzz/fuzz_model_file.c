/* fuzz_model_file.c: headers of model files. The first byte of an input chooses: the rest is the file itself, or it edits a
 * good one. Whatever comes, the answer is a sentence, or facts that fit the file. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "llm.h"
#include "model/llama/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { FILE_BYTES_MAX = 4096 };

static uint8_t good[FILE_BYTES_MAX];
static size_t n_good;

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void number(uint64_t value, size_t n)
{
    memcpy(good + n_good, &value, n);
    n_good += n;
}

static void text(const char *words)
{
    number(strlen(words), 8);
    memcpy(good + n_good, words, strlen(words));
    n_good += strlen(words);
}

static void tensor(const char *name, uint64_t n_row, uint64_t n_rows, uint32_t type, uint64_t offset)
{
    text(name);
    number(2, 4);
    number(n_row, 8);
    number(n_rows, 8);
    number(type, 4);
    number(offset, 8);
}

/* Version 3, two tensors, one key of each form. */
static void make_good(void)
{
    memcpy(good, "GGUF", 4);
    n_good = 4;
    number(3, 4);
    number(2, 8);
    number(6, 8);
    text("general.architecture");
    number(8, 4);
    text("qwen3");
    text("general.alignment");
    number(4, 4);
    number(32, 4);
    text("split.count");
    number(2, 4);
    number(1, 2);
    text("a.float");
    number(12, 4);
    number(0x3ff0000000000000, 8);
    text("tokenizer.ggml.tokens");
    number(9, 4);
    number(8, 4);
    number(3, 8);
    text("a");
    text("b");
    text("<|end|>");
    text("tokenizer.ggml.token_type");
    number(9, 4);
    number(5, 4);
    number(3, 8);
    number(1, 4);
    number(1, 4);
    number(3, 4);
    tensor("token_embd.weight", 8, 3, 0, 0);
    tensor("output.weight", 32, 2, 8, 96);
    n_good = (n_good + 31) / 32 * 32 + 96 + 68;
}

static void check(const uint8_t *bytes, size_t n)
{
    char error[512] = "";
    model_file facts;
    const int status = model_file_read("model.gguf", bytes, n, &facts, error, sizeof error);
    if (status != LLM_OK) {
        require(status == LLM_MODEL_LOAD && strncmp(error, "cannot load the model model.gguf: ", 34) == 0);
        require(strlen(error) > 40);
        return;
    }
    require(facts.n_bytes == n && facts.n_tensors <= MODEL_FILE_TENSORS_MAX);
    require(facts.n_parts >= 1 && facts.part < facts.n_parts);
}

/* Four bytes are one edit: where, how many bytes, what with. The first two say where the file ends. */
static void check_edited(const uint8_t *data, size_t n_bytes)
{
    uint8_t edited[FILE_BYTES_MAX];
    uint16_t end, entry;
    if (n_good == 0) {
        make_good();
        check(good, n_good);
    }
    if (n_bytes < 2) {
        return;
    }
    memcpy(edited, good, n_good);
    memcpy(&end, data, 2);
    for (size_t i = 2; i + 4 <= n_bytes; i += 4) {
        memcpy(&entry, data + i, 2);
        entry %= n_good;
        const size_t n = data[i + 2] % 9;
        memset(edited + entry, data[i + 3], entry + n <= n_good ? n : 1);
    }
    check(edited, end % 4 == 0 ? end % n_good : n_good);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        check(data + 1, n_bytes - 1);
    } else {
        check_edited(data + 1, n_bytes - 1);
    }
    return 0;
}
