/* identity.cpp: computes the identity of a model (model_info). The identity decides whether saved tokens and states
 * belong to the model. A state of another model would give wrong text without an error. The identity depends only on
 * the contents of the file. So the file can be moved. All metadata is hashed. Hashing gigabytes of weights at every
 * start would take minutes. So of the weights only 64 evenly spread samples of 4 KiB are hashed. The samples suffice,
 * because a fine-tuned copy of a model differs in practically every tensor. */
#include "model/llama/llama_model.h"

#include <gguf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>

namespace {

constexpr uint64_t SAMPLES = 64;
constexpr size_t SAMPLE_BYTES = 4096;
constexpr uint64_t FNV_PRIME = 0x100000001b3;

/* Two hashes with different starts and rotations. Both are FNV-1a over 8-byte words. In FNV alone the last words change
 * too few bits of the hash, so finish() mixes the two hashes. */
class hash128 {
  public:
    void add(const void *bytes, size_t n)
    {
        const uint8_t *at = static_cast<const uint8_t *>(bytes);
        for (; n >= 8; at += 8, n -= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            add_word(word);
        }
        uint64_t rest = 0;
        memcpy(&rest, at, n);
        add_word(rest ^ (static_cast<uint64_t>(n) << 56));
    }

    void add_word(uint64_t word)
    {
        a = (a ^ word) * FNV_PRIME;
        a ^= a >> 32;
        b = (b ^ ((word << 29) | (word >> 35))) * 0x9e3779b97f4a7c15;
        b ^= b >> 29;
    }

    void finish(uint8_t out[16]) const
    {
        const uint64_t words[2] = {mixed(a + (b << 1)), mixed(b ^ mixed(a))};
        for (int i = 0; i < 16; i++) { /* writes the words by value, so that the bytes are the same on every machine */
            out[i] = static_cast<uint8_t>(words[i / 8] >> (8 * (i % 8)));
        }
    }

  private:
    static uint64_t mixed(uint64_t x)
    {
        x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
        x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
        return x ^ (x >> 33);
    }

    uint64_t a = 0xcbf29ce484222325, b = 0x84222325cbf29ce4;
};

struct file {
    int fd = -1;
    uint64_t bytes = 0;

    explicit file(const char *path) : fd(open(path, O_RDONLY | O_CLOEXEC))
    {
        struct stat facts;
        if (fd >= 0 && fstat(fd, &facts) == 0) {
            bytes = static_cast<uint64_t>(facts.st_size);
        }
    }
    ~file()
    {
        if (fd >= 0) {
            close(fd);
        }
    }
    file(const file &) = delete;
    file &operator=(const file &) = delete;
};

bool add_range(hash128 &hash, const file &f, uint64_t at, uint64_t n)
{
    std::vector<uint8_t> buffer(1 << 16);
    while (n > 0) {
        const size_t want = static_cast<size_t>(std::min<uint64_t>(n, buffer.size()));
        for (size_t have = 0; have < want;) { /* reads whole blocks, because the hash must not depend on short reads */
            const ssize_t got = pread(f.fd, buffer.data() + have, want - have, static_cast<off_t>(at + have));
            if (got <= 0) {
                return false;
            }
            have += static_cast<size_t>(got);
        }
        hash.add(buffer.data(), want);
        at += want;
        n -= want;
    }
    return true;
}

/* Adds the weights to the hash. The weights begin at byte `begin` of the file. A small file is hashed completely. Of a
 * larger file, samples at equal distances and at the end are hashed. */
bool add_samples(hash128 &hash, const file &f, uint64_t begin)
{
    if (f.bytes <= begin + SAMPLES * SAMPLE_BYTES) {
        return add_range(hash, f, begin, f.bytes - std::min(begin, f.bytes));
    }
    const uint64_t last = f.bytes - begin - SAMPLE_BYTES;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        if (!add_range(hash, f, begin + last / (SAMPLES - 1) * i, SAMPLE_BYTES)) {
            return false;
        }
    }
    return add_range(hash, f, begin + last, SAMPLE_BYTES);
}

/* What the header of one file says: where the weights begin, and of how many parts the model consists. */
struct layout {
    uint64_t data_offset;
    int32_t n_parts;
    bool has_long_rope; /* the encoding of positions depends on the length of the context */
};

bool read_layout(const char *path, layout *out)
{
    const gguf_init_params params = {/*no_alloc*/ true, /*ctx*/ nullptr};
    const std::unique_ptr<gguf_context, decltype(&gguf_free)> gguf(gguf_init_from_file(path, params), gguf_free);
    if (gguf == nullptr) {
        return false;
    }
    const int64_t key = gguf_find_key(gguf.get(), "split.count");
    out->data_offset = gguf_get_data_offset(gguf.get());
    out->n_parts =
        key >= 0 && gguf_get_kv_type(gguf.get(), key) == GGUF_TYPE_UINT16 ? gguf_get_val_u16(gguf.get(), key) : 1;
    out->has_long_rope = gguf_find_tensor(gguf.get(), "rope_factors_long.weight") >= 0;
    return true;
}

bool add_part(hash128 &hash, const char *path, int32_t *n_parts, bool *has_long_rope)
{
    layout where;
    const file f(path);
    if (f.fd < 0 || !read_layout(path, &where)) {
        return false;
    }
    *n_parts = where.n_parts;
    *has_long_rope = *has_long_rope || where.has_long_rope;
    hash.add_word(f.bytes);
    return add_range(hash, f, 0, std::min(where.data_offset, f.bytes)) && add_samples(hash, f, where.data_offset);
}

} // namespace

bool model_llama_identity(const char *path, uint8_t out[16], bool *has_long_rope)
{
    hash128 hash;
    int32_t n_parts = 1;
    *has_long_rope = false;
    if (!add_part(hash, path, &n_parts, has_long_rope)) {
        return false;
    }
    char prefix[PATH_MAX], part[PATH_MAX];
    const bool is_split = n_parts > 1 && llama_split_prefix(prefix, sizeof prefix, path, 0, n_parts) > 0;
    for (int32_t i = 1; is_split && i < n_parts; i++) {
        int32_t ignored;
        llama_split_path(part, sizeof part, prefix, i, n_parts);
        if (!add_part(hash, part, &ignored, has_long_rope)) {
            return false;
        }
    }
    hash.finish(out);
    return true;
}

void model_llama_geometry(const std::string &configuration, uint8_t out[16])
{
    hash128 hash;
    hash.add(configuration.data(), configuration.size());
    hash.finish(out);
}
