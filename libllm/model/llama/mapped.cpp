/* mapped.cpp: drops the pages of the model's mapped files after weights were copied into other layouts. Otherwise the
 * pages would stay resident in addition to the copy. When the pages were not dropped, an idle daemon of a 0.6B model
 * took 820 MB beyond its weights. Now it takes 190 MB. Called once, by the thread that opens the model, before other
 * threads read the weights. */
#include <ggml.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/llama/llama_model.h"

/* A copy of the declaration in src/llama-model.h of the pinned llama.cpp. That header is not installed. */
const std::vector<std::pair<std::string, ggml_tensor *>> &llama_internal_get_tensor_map(const llama_model *weights);

namespace {

constexpr size_t SMALL_BYTES = 1 << 16; /* weights up to this size are moved to separate pages */

/* A range of whole pages. */
struct addresses {
    uintptr_t begin, end;

    size_t n_bytes() const
    {
        return end - begin;
    }
    void *at() const
    {
        return reinterpret_cast<void *>(begin);
    }
    bool contain(addresses other) const
    {
        return begin <= other.begin && other.end <= end;
    }
};

/* Returns the inodes of the model's files. */
std::set<uint64_t> inodes_of(const llama_model *weights, const char *path)
{
    char text[32] = "", prefix[PATH_MAX], part[PATH_MAX];
    const bool has_parts = llama_model_meta_val_str(weights, "split.count", text, sizeof text) > 0;
    const int32_t n_parts = has_parts ? static_cast<int32_t>(strtol(text, nullptr, 10)) : 1;
    const bool is_split = n_parts > 1 && llama_split_prefix(prefix, sizeof prefix, path, 0, n_parts) > 0;
    std::set<uint64_t> out;
    for (int32_t i = 0; i < (is_split ? n_parts : 1); i++) {
        struct stat facts;
        if (i > 0) {
            llama_split_path(part, sizeof part, prefix, i, n_parts);
        }
        if (stat(i > 0 ? part : path, &facts) == 0) {
            out.insert(facts.st_ino);
        }
    }
    return out;
}

/* Returns the address ranges at which this process has mapped these files read-only and shared, as llama.cpp does.
 * Other mappings of the files are left out, because another thread could unmap such a mapping at any time. Other data
 * could then be mapped at the same addresses, and the caller would drop the pages of this data. */
std::vector<addresses> mapped_of(const std::set<uint64_t> &inodes)
{
    std::ifstream maps("/proc/self/maps");
    std::string line;
    std::vector<addresses> out;
    while (std::getline(maps, line)) {
        unsigned long begin = 0, end = 0, inode = 0;
        char access[5] = "";
        if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %lu", &begin, &end, access, &inode) == 4 &&
            std::strcmp(access, "r--s") == 0 && inodes.count(inode) > 0) {
            out.push_back({begin, end});
        }
    }
    return out;
}

/* Returns the pages of these mappings that contain small weights, in ascending order, each page once. Steps read the
 * small weights from these mappings even after the large weights have been copied. */
std::vector<addresses> small_of(const llama_model *weights, const std::vector<addresses> &mapped)
{
    const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    std::vector<addresses> all;
    for (const auto &[name, tensor] : llama_internal_get_tensor_map(weights)) {
        const uintptr_t at = reinterpret_cast<uintptr_t>(tensor->data);
        const size_t n_bytes = ggml_nbytes(tensor);
        const addresses pages = {at / page * page, (at + n_bytes + page - 1) / page * page};
        if (n_bytes > 0 && n_bytes <= SMALL_BYTES &&
            std::any_of(mapped.begin(), mapped.end(), [&](const addresses &range) { return range.contain(pages); })) {
            all.push_back(pages);
        }
    }
    std::sort(all.begin(), all.end(), [](const addresses &a, const addresses &b) { return a.begin < b.begin; });
    std::vector<addresses> out;
    for (const addresses &pages : all) {
        if (!out.empty() && pages.begin <= out.back().end) {
            out.back().end = std::max(out.back().end, pages.end);
        } else {
            out.push_back(pages);
        }
    }
    return out;
}

/* Copies the ranges, one after the other, into anonymous memory, which is then made read-only. Returns NULL if there is
 * no memory. */
char *copied(const std::vector<addresses> &ranges, size_t n_bytes)
{
    void *out = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (out == MAP_FAILED) {
        return nullptr;
    }
    char *at = static_cast<char *>(out);
    for (const addresses &range : ranges) {
        std::memcpy(at, range.at(), range.n_bytes());
        at += range.n_bytes();
    }
    (void)mprotect(out, n_bytes, PROT_READ);
    return static_cast<char *>(out);
}

/* Moves the copies to the addresses of their originals. So llama.cpp's pointers stay valid. mremap replaces a mapping
 * in one call. With munmap and mmap, the addresses would stay unmapped if mmap failed for lack of memory. If mremap
 * fails, the kernel may already have unmapped the originals, and the model must not be used. */
void put_in_place(char *copy, const std::vector<addresses> &ranges)
{
    for (const addresses &range : ranges) {
        if (mremap(copy, range.n_bytes(), range.n_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, range.at()) == MAP_FAILED) {
            throw std::runtime_error("no memory for the pages of its small weights");
        }
        copy += range.n_bytes();
    }
}

} // namespace

/* The small weights are copied before the pages are dropped, because copying them later would map the file's pages
 * again. */
void model_llama_drop_mapped(const llama_model *weights, const char *path)
{
    const std::vector<addresses> mapped = mapped_of(inodes_of(weights, path));
    const std::vector<addresses> small = small_of(weights, mapped);
    size_t n_small_bytes = 0;
    for (const addresses &range : small) {
        n_small_bytes += range.n_bytes();
    }
    char *copy = n_small_bytes > 0 ? copied(small, n_small_bytes) : nullptr;
    for (const addresses &range : mapped) {
        (void)madvise(range.at(), range.n_bytes(), MADV_DONTNEED); /* fails for locked pages, which then stay in
                                                                    * memory */
    }
    if (copy != nullptr) {
        put_in_place(copy, small);
    }
}
