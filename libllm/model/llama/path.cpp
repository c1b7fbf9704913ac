/* path.cpp: recognizes what users name by mistake instead of a GGUF file, and says what to do. For example, users name
 * other files, directories, or names of models. */
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "model/llama/llama_model.h"

namespace {

constexpr size_t FIRST_BYTES = 256;

/* Kinds of files that users mistake for models, recognized by their first bytes. */
struct kind {
    std::string_view begin;
    const char *what;
};
const kind KINDS[] = {
    {"PK\x03\x04",
     "a PyTorch or ZIP archive; convert it with llama.cpp's convert_hf_to_gguf.py, or download a GGUF file"},
    {"\x80\x02", "a Python pickle; convert it with llama.cpp's convert_hf_to_gguf.py, or download a GGUF file"},
    {"version https://git-lfs", "the pointer that Git LFS left in place of the file; fetch it with: git lfs pull"},
    {"<!", "a web page; download the file again, with the link of the file itself"},
    {"<html", "a web page; download the file again, with the link of the file itself"},
    {"lmgg", "of a format from before GGUF; download the model as GGUF"},
    {"fmgg", "of a format from before GGUF; download the model as GGUF"},
    {"tjgg", "of a format from before GGUF; download the model as GGUF"},
    {"\x1f\x8b", "compressed with gzip; unpack it first"},
    {"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"},
};

bool ends_with(const std::string &text, const char *end)
{
    const size_t n = strlen(end);
    return text.size() >= n && text.compare(text.size() - n, n, end) == 0;
}

/* Returns whether the path looks like a name of a model that other programs accept. Examples are "owner/name",
 * "owner/name:quant", "hf.co/owner/name" and "name:size". */
bool is_name_elsewhere(const std::string &path)
{
    const bool is_plain = std::all_of(path.begin(), path.end(), [](unsigned char c) {
        return isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/' || c == ':';
    });
    return is_plain && path[0] != '.' && path[0] != '/' && !ends_with(path, "/") && !ends_with(path, ".gguf");
}

std::string about_missing(const std::string &path, int cause)
{
    if (path.find("://") != std::string::npos) {
        return "it is an address; download the file first (curl -LO ADDRESS) and give its path";
    }
    if (cause == ENOENT && is_name_elsewhere(path)) {
        return "there is no such file, and llmd takes the path of a GGUF file. If it is the name of a model: download "
               "one "
               "of the model's GGUF files, with 'hf download OWNER/NAME FILE.gguf' or from https://huggingface.co, and "
               "give the path of that";
    }
    if (cause == ENOENT && path[0] == '~') {
        return "there is no such file; '~' was not replaced: give the whole path";
    }
    return strerror(cause);
}

std::string about_directory(const std::string &path)
{
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir(path.c_str()), closedir);
    std::string model, weights;
    while (const dirent *one = folder == nullptr ? nullptr : readdir(folder.get())) {
        const std::string name = one->d_name;
        if (ends_with(name, ".gguf") && (model.empty() || name < model)) {
            model = name;
        }
        if (ends_with(name, ".safetensors")) {
            weights = name;
        }
    }
    if (!model.empty()) {
        return "it is a directory; name a file in it, such as " + path + (ends_with(path, "/") ? "" : "/") + model;
    }
    if (!weights.empty()) {
        return "it is a directory with safetensors; convert it with llama.cpp's convert_hf_to_gguf.py, or download the "
               "model as GGUF";
    }
    return "it is a directory; give the path of a GGUF file";
}

/* A safetensors file begins with 8 bytes, which are the length of the JSON that follows. The last of these bytes, which
 * is the most significant one, is 0. */
bool is_safetensors(std::string_view first)
{
    return first.size() > 9 && first[7] == '\0' && first[8] == '{' && first[9] == '"';
}

std::string about_bytes(const std::string &path, std::string_view first)
{
    if (is_safetensors(first) || ends_with(path, ".safetensors")) {
        return "it is a safetensors file; convert the model with llama.cpp's convert_hf_to_gguf.py, or download it as "
               "GGUF";
    }
    for (const kind &k : KINDS) {
        if (first.compare(0, k.begin.size(), k.begin) == 0) {
            return std::string("it is not a GGUF model file, but ") + k.what;
        }
    }
    return "it is not a GGUF model file";
}

} // namespace

std::string model_llama_path_trouble(const std::string &path)
{
    struct stat facts;
    if (stat(path.c_str(), &facts) != 0) {
        return about_missing(path, errno);
    }
    if (S_ISDIR(facts.st_mode)) {
        return about_directory(path);
    }
    if (!S_ISREG(facts.st_mode)) {
        return "it is not a regular file";
    }
    const std::unique_ptr<FILE, int (*)(FILE *)> file(fopen(path.c_str(), "rbe"), fclose);
    if (file == nullptr) {
        return strerror(errno);
    }
    char first[FIRST_BYTES];
    const size_t n = fread(first, 1, sizeof first, file.get());
    if (n == 0) {
        return "it is empty: perhaps a download that did not finish";
    }
    return n >= 4 && memcmp(first, "GGUF", 4) == 0 ? std::string() : about_bytes(path, {first, n});
}
