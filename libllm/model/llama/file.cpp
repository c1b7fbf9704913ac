/* file.cpp: checks the headers of GGUF files (file.h). A header is read once from its beginning, value by value. A
 * count in the file is compared with a limit and with the number of remaining bytes before memory is allocated for it.
 * Arrays are read but not stored. The checks are:
 * - The version is known.
 * - No key and no tensor occurs twice.
 * - The types and sizes of tensors are valid.
 * - The tensors follow each other without gaps and end within the file.
 * The contents of arrays and weights are checked only by llama.cpp. crash.h catches its assertions. */
#include "model/llama/file.h"

#include <fcntl.h>
#include <ggml.h>
#include <gguf.h>
#include <llama.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include "llm.h"

namespace {

constexpr uint32_t VERSION_MIN = 2, VERSION_MAX = 3;
constexpr uint32_t ALIGNMENT_DEFAULT = 32;
constexpr size_t WINDOW_BYTES = 1 << 16;
constexpr uint64_t ELEMENTS_MAX = 1ull << 40; /* most elements of one tensor: byte counts then fit into 64 bits */

/* Thrown if the file is refused. The text is the reason: it completes the sentence "cannot load the model PATH:
 * ...". */
struct damaged : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::string number(uint64_t n)
{
    return std::to_string(n);
}

/* Returns a key or a name for an error message, with at most 80 bytes. The file can contain any bytes, so '?' replaces
 * everything but printable ASCII. */
std::string shown(const std::string &text)
{
    std::string out;
    for (const char c : text.substr(0, 80)) {
        out += c >= 0x20 && c < 0x7f ? c : '?';
    }
    return "'" + out + (text.size() > 80 ? "...'" : "'");
}

/* ---- the bytes of a header --------------------------------------------------------------------------------------- */

/* Reads the bytes of a header, from memory or from a file (through a buffer of 64 KiB). */
class source {
  public:
    source(const void *bytes, size_t n) : memory(static_cast<const uint8_t *>(bytes)), n_bytes(n) {}

    explicit source(const std::string &path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC))
    {
        struct stat facts;
        if (fd < 0 || fstat(fd, &facts) != 0) {
            const std::string cause = strerror(errno);
            close_file();
            throw damaged(cause);
        }
        n_bytes = static_cast<uint64_t>(facts.st_size);
        window.resize(WINDOW_BYTES);
    }

    ~source()
    {
        close_file();
    }
    source(const source &) = delete;
    source &operator=(const source &) = delete;

    uint64_t size() const
    {
        return n_bytes;
    }
    uint64_t position() const
    {
        return at;
    }

    /* Reads n bytes, or throws `damaged`. `what` names the value in the message. */
    void read(void *out, size_t n, const char *what)
    {
        if (n > n_bytes - at) {
            throw damaged("the file ends in the middle of its header, at " + std::string(what) +
                          ": it was cut off, or is damaged");
        }
        if (at + n > MODEL_FILE_HEADER_BYTES_MAX) {
            throw damaged("its header is longer than " + number(MODEL_FILE_HEADER_BYTES_MAX >> 20) + " MiB");
        }
        uint8_t *to = static_cast<uint8_t *>(out);
        while (n > 0) {
            const size_t part = copy(to, n);
            to += part;
            at += part;
            n -= part;
        }
    }

  private:
    /* Copies at least one byte and at most n bytes. Returns how many bytes were copied. */
    size_t copy(uint8_t *to, size_t n)
    {
        if (memory != nullptr) {
            memcpy(to, memory + at, n);
            return n;
        }
        if (at < window_begin || at >= window_begin + window_bytes) {
            const ssize_t got = pread(fd, window.data(), window.size(), static_cast<off_t>(at));
            if (got <= 0) {
                throw damaged(got < 0 ? "reading it failed: " + std::string(strerror(errno))
                                      : "the file became shorter while it was read");
            }
            window_begin = at;
            window_bytes = static_cast<uint64_t>(got);
        }
        const size_t part = static_cast<size_t>(std::min<uint64_t>(n, window_begin + window_bytes - at));
        memcpy(to, window.data() + (at - window_begin), part);
        return part;
    }

    void close_file()
    {
        if (fd >= 0) {
            close(fd);
        }
    }

    const uint8_t *memory = nullptr;
    int fd = -1;
    uint64_t n_bytes = 0, at = 0, window_begin = 0, window_bytes = 0;
    std::vector<uint8_t> window;
};

template <typename T> T take(source &from, const char *what)
{
    T value;
    from.read(&value, sizeof value, what);
    return value;
}

/* Reads a text. A damaged file of 100 bytes can state thousands of texts of 16 MiB each. So a text's length is compared
 * with the number of remaining bytes before memory is allocated. */
std::string take_string(source &from, uint64_t n_max, const char *what)
{
    const uint64_t n = take<uint64_t>(from, what);
    if (n > n_max) {
        throw damaged(std::string(what) + " has " + number(n) + " bytes; " + number(n_max) + " are allowed");
    }
    if (n > from.size() - from.position()) {
        throw damaged(std::string(what) + " is longer than the rest of the file: it was cut off, or is damaged");
    }
    std::string out(static_cast<size_t>(n), '\0');
    from.read(&out[0], out.size(), what);
    return out;
}

/* ---- the keys of a header ---------------------------------------------------------------------------------------- */

/* Returns how many bytes a number of this type has, or 0 if the type is not a number. */
size_t bytes_of(uint32_t type)
{
    switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL: return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16: return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32: return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64: return 8;
    default: return 0;
    }
}

struct entry {
    uint32_t type;
    bool is_array;
    uint64_t n;       /* number of elements of an array */
    uint64_t bits;    /* the value, if it is a number */
    std::string text; /* the value, if it is a string */
};

using entries = std::map<std::string, entry>;

/* Reads an array and stores only its type and length. */
void take_array(source &from, const std::string &key, entry *out)
{
    out->is_array = true;
    out->type = take<uint32_t>(from, "the type of an array");
    out->n = take<uint64_t>(from, "the length of an array");
    if (out->type == GGUF_TYPE_ARRAY) {
        throw damaged("the key " + shown(key) + " is a list of lists");
    }
    if (out->n > MODEL_FILE_ELEMENTS_MAX) {
        throw damaged("the key " + shown(key) + " has " + number(out->n) + " elements; " +
                      number(MODEL_FILE_ELEMENTS_MAX) + " are allowed");
    }
    if (out->type == GGUF_TYPE_STRING) {
        const bool is_vocabulary = key == "tokenizer.ggml.tokens";
        for (uint64_t i = 0; i < out->n; i++) {
            take_string(from, is_vocabulary ? MODEL_FILE_TOKEN_BYTES_MAX : MODEL_FILE_STRING_BYTES_MAX,
                        is_vocabulary ? "a token of the vocabulary" : "a text in a list");
        }
        return;
    }
    const size_t n_each = bytes_of(out->type);
    if (n_each == 0) {
        throw damaged("the key " + shown(key) + " is a list of the unknown type " + number(out->type));
    }
    std::vector<uint8_t> ignored(WINDOW_BYTES);
    for (uint64_t n = out->n * n_each; n > 0;) {
        const size_t part = static_cast<size_t>(std::min<uint64_t>(n, ignored.size()));
        from.read(ignored.data(), part, "a list of numbers");
        n -= part;
    }
}

entry take_value(source &from, const std::string &key)
{
    entry out = {take<uint32_t>(from, "the type of a key"), false, 0, 0, ""};
    if (out.type == GGUF_TYPE_ARRAY) {
        take_array(from, key, &out);
    } else if (out.type == GGUF_TYPE_STRING) {
        out.text = take_string(from, MODEL_FILE_STRING_BYTES_MAX, "the text of a key");
    } else if (const size_t n = bytes_of(out.type)) {
        from.read(&out.bits, n, "the value of a key");
    } else {
        throw damaged("the key " + shown(key) + " has the unknown type " + number(out.type));
    }
    return out;
}

entries take_entries(source &from, uint64_t n)
{
    entries out;
    for (uint64_t i = 0; i < n; i++) {
        const std::string key = take_string(from, MODEL_FILE_KEY_BYTES_MAX, "the name of a key");
        if (key.empty()) {
            throw damaged("a key has no name");
        }
        if (!out.emplace(key, take_value(from, key)).second) {
            throw damaged("the key " + shown(key) + " is there twice");
        }
    }
    return out;
}

/* Returns the number of a key, or `otherwise` if the key is missing. If the key has another type, refuses the file,
 * because llama.cpp would fail an assertion. */
uint64_t number_of(const entries &all, const char *key, uint32_t type, uint64_t otherwise)
{
    const auto found = all.find(key);
    if (found == all.end()) {
        return otherwise;
    }
    if (found->second.is_array || found->second.type != type) {
        throw damaged("the key " + shown(key) + " is not of type " + gguf_type_name(static_cast<gguf_type>(type)));
    }
    return found->second.bits;
}

uint64_t alignment_of(const entries &all)
{
    const uint64_t n = number_of(all, "general.alignment", GGUF_TYPE_UINT32, ALIGNMENT_DEFAULT);
    if (n == 0 || (n & (n - 1)) != 0 || n > MODEL_FILE_ALIGNMENT_MAX) {
        throw damaged("the key 'general.alignment' is " + number(n) + "; a power of two up to " +
                      number(MODEL_FILE_ALIGNMENT_MAX) + " is needed");
    }
    return n;
}

/* ---- the descriptions of tensors in a header --------------------------------------------------------------------- */

struct tensor {
    std::string name;
    uint64_t n_bytes;
    uint64_t offset;
};

uint64_t bytes_of_rows(const std::string &name, uint32_t type, uint64_t n_row, uint64_t n_elements)
{
    if (type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) <= 0 ||
        ggml_type_size(static_cast<ggml_type>(type)) == 0) {
        throw damaged("the tensor " + shown(name) + " has the unknown type " + number(type) +
                      "; a newer version may read it");
    }
    const uint64_t n_block = static_cast<uint64_t>(ggml_blck_size(static_cast<ggml_type>(type)));
    if (n_row % n_block != 0) {
        throw damaged("the tensor " + shown(name) + " has rows of " + number(n_row) + " elements in blocks of " +
                      number(n_block));
    }
    return n_elements / n_block * ggml_type_size(static_cast<ggml_type>(type));
}

tensor take_tensor(source &from)
{
    tensor out;
    out.name = take_string(from, GGML_MAX_NAME - 1, "the name of a tensor");
    const uint32_t n_dimensions = take<uint32_t>(from, "the shape of a tensor");
    if (n_dimensions < 1 || n_dimensions > GGML_MAX_DIMS) {
        throw damaged("the tensor " + shown(out.name) + " has " + number(n_dimensions) + " dimensions; 1 to " +
                      number(GGML_MAX_DIMS) + " are allowed");
    }
    uint64_t n_row = 0, n_elements = 1;
    for (uint32_t i = 0; i < n_dimensions; i++) {
        const uint64_t n = take<uint64_t>(from, "the shape of a tensor");
        if (n < 1 || n > ELEMENTS_MAX / n_elements) {
            throw damaged("the tensor " + shown(out.name) + " has an impossible shape");
        }
        n_row = i == 0 ? n : n_row;
        n_elements *= n;
    }
    out.n_bytes = bytes_of_rows(out.name, take<uint32_t>(from, "the type of a tensor"), n_row, n_elements);
    out.offset = take<uint64_t>(from, "the offset of a tensor");
    return out;
}

/* Reads the descriptions of the tensors. The tensors must follow each other, aligned and without gaps. Returns the
 * position at which the last tensor ends, counted from the beginning of the weights. */
uint64_t take_tensors(source &from, uint64_t n, uint64_t alignment)
{
    std::unordered_set<std::string> names;
    uint64_t expected = 0, end = 0;
    for (uint64_t i = 0; i < n; i++) {
        const tensor t = take_tensor(from);
        if (t.name.empty() || !names.insert(t.name).second) {
            throw damaged(t.name.empty() ? "a tensor has no name" : "the tensor " + shown(t.name) + " is there twice");
        }
        if (t.offset != expected) {
            throw damaged("the tensor " + shown(t.name) + " lies at " + number(t.offset) + " and not at " +
                          number(expected) + ", where the one before it ends");
        }
        end = expected + t.n_bytes;
        expected = (end + alignment - 1) / alignment * alignment;
        if (end > static_cast<uint64_t>(INT64_MAX) / 2) {
            throw damaged("its tensors are larger than any file");
        }
    }
    return end;
}

/* ---- the header, and the parts of a split model ------------------------------------------------------------------ */

/* Refuses unknown versions. A number whose lower 16 bits are 0 is a small version in the other byte order. */
void check_version(uint32_t version)
{
    if (version == 0 || (version & 0xffff) == 0) {
        throw damaged("it was written for machines of the other byte order, or is damaged");
    }
    if (version < VERSION_MIN || version > VERSION_MAX) {
        throw damaged("it has GGUF version " + number(version) + "; versions " + number(VERSION_MIN) + " and " +
                      number(VERSION_MAX) + " can be read" +
                      (version < VERSION_MIN ? ": convert it again with a current llama.cpp" : ""));
    }
}

void read_parts(const entries &all, model_file *out)
{
    out->n_parts = static_cast<uint32_t>(number_of(all, "split.count", GGUF_TYPE_UINT16, 0));
    out->part = static_cast<uint32_t>(number_of(all, "split.no", GGUF_TYPE_UINT16, 0));
    const uint64_t n_all = number_of(all, "split.tensors.count", GGUF_TYPE_INT32, 0);
    out->n_tensors_all = static_cast<uint32_t>(n_all);
    out->n_parts = std::max<uint32_t>(out->n_parts, 1);
    if (out->n_parts > MODEL_FILE_PARTS_MAX || out->part >= out->n_parts || n_all > MODEL_FILE_TENSORS_MAX) {
        throw damaged("its header says that it is part " + number(out->part + 1) + " of " + number(out->n_parts) +
                      " with " + number(n_all) + " tensors");
    }
}

void read_header(source &from, model_file *out)
{
    char magic[4] = {0};
    if (from.size() < sizeof magic) {
        throw damaged("it is not a GGUF model file: it has " + number(from.size()) + " bytes");
    }
    from.read(magic, sizeof magic, "its first bytes");
    if (memcmp(magic, "GGUF", sizeof magic) != 0) {
        throw damaged("it is not a GGUF model file");
    }
    check_version(take<uint32_t>(from, "its version"));
    const uint64_t n_tensors = take<uint64_t>(from, "the number of its tensors");
    const uint64_t n_keys = take<uint64_t>(from, "the number of its keys");
    if (n_tensors > MODEL_FILE_TENSORS_MAX || n_keys > MODEL_FILE_KEYS_MAX) {
        throw damaged("it claims " + number(n_tensors) + " tensors and " + number(n_keys) + " keys; at most " +
                      number(MODEL_FILE_TENSORS_MAX) + " and " + number(MODEL_FILE_KEYS_MAX) + " are allowed");
    }
    const entries all = take_entries(from, n_keys);
    const uint64_t alignment = alignment_of(all);
    read_parts(all, out);
    const auto architecture = all.find("general.architecture");
    if (architecture != all.end()) {
        snprintf(out->architecture, sizeof out->architecture, "%s", architecture->second.text.c_str());
    }
    out->n_bytes = from.size();
    out->n_tensors = static_cast<uint32_t>(n_tensors);
    const uint64_t end = take_tensors(from, n_tensors, alignment);
    const uint64_t begin = (from.position() + alignment - 1) / alignment * alignment;
    if (n_tensors > 0 && (from.size() < begin || from.size() - begin < end)) {
        throw damaged("it has " + number(from.size()) + " bytes, but its weights end at " + number(begin + end) +
                      ": it was cut off, perhaps by a download that did not finish");
    }
}

int refuse(int status, const std::string &name, const char *why, char *error, size_t error_bytes)
{
    if (error != nullptr && error_bytes > 0) {
        snprintf(error, error_bytes, "cannot load the model %s: %s", name.c_str(), why);
    }
    return status;
}

/* Runs `work` and turns its exceptions into a status and a sentence. An exception other than `damaged` means a lack of
 * memory. */
template <typename F> int guarded(const std::string &name, char *error, size_t error_bytes, F work)
{
    try {
        work();
        return LLM_OK;
    } catch (const damaged &e) {
        return refuse(LLM_MODEL_LOAD, name, e.what(), error, error_bytes);
    } catch (const std::exception &) {
        return refuse(LLM_NO_MEMORY, name, "out of memory while reading its header", error, error_bytes);
    }
}

/* Checks the other parts of a split model, and adds up their sizes and tensors. The names of the other parts follow
 * from the first part's name. Without these checks, a part of another model with the right name would be loaded, and
 * the model would generate nonsense. */
void add_parts(const std::string &path, model_file *all)
{
    char prefix[PATH_MAX], name[PATH_MAX];
    const int32_t n_parts = static_cast<int32_t>(all->n_parts);
    if (all->part != 0) {
        throw damaged("it is part " + number(all->part + 1) + " of " + number(all->n_parts) + "; name the first one");
    }
    if (llama_split_prefix(prefix, sizeof prefix, path.c_str(), 0, n_parts) <= 0) {
        throw damaged("it is the first of " + number(all->n_parts) +
                      " parts, and must be called NAME-00001-of-NNNNN.gguf for the others to be found");
    }
    for (int32_t i = 1; i < n_parts; i++) {
        llama_split_path(name, sizeof name, prefix, i, n_parts);
        model_file one = {};
        try {
            source from{std::string(name)};
            read_header(from, &one);
        } catch (const damaged &e) {
            throw damaged("its part " + std::string(name) + ": " + e.what());
        }
        if (one.n_parts != all->n_parts || one.part != static_cast<uint32_t>(i)) {
            throw damaged("its part " + std::string(name) + " belongs to another model");
        }
        all->n_bytes += one.n_bytes;
        all->n_tensors += one.n_tensors;
    }
    if (all->n_tensors_all != 0 && all->n_tensors != all->n_tensors_all) {
        throw damaged("its parts have " + number(all->n_tensors) + " tensors together, not " +
                      number(all->n_tensors_all));
    }
}

} // namespace

int model_file_read(const char *name, const void *bytes, size_t n_bytes, model_file *out, char *error,
                    size_t error_bytes)
{
    *out = {};
    return guarded(name, error, error_bytes, [&] {
        source from(bytes, n_bytes);
        read_header(from, out);
    });
}

int model_file_check(const char *path, model_file *out, char *error, size_t error_bytes)
{
    *out = {};
    return guarded(path, error, error_bytes, [&] {
        source from{std::string(path)};
        read_header(from, out);
        if (out->n_parts > 1) {
            add_parts(path, out);
        }
    });
}

int model_file_may_be_copied(uint64_t n_bytes, uint64_t n_free)
{
    return n_bytes <= n_free && n_bytes / 4 <= n_free - n_bytes;
}
