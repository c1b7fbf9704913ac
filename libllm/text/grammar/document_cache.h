/* document_cache.h: objects that were made from documents, for the next document with the same bytes. Agents send the
 * same tools in every turn, and many sessions have the same tools. So the same few documents return again and again,
 * with hundreds of kilobytes each. Documents are compared byte by byte, not by a hash. If the cache is full, the least
 * recently used object is dropped. Any thread can use the cache. */
#ifndef LLM_DOCUMENT_CACHE_H
#define LLM_DOCUMENT_CACHE_H

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

template <typename T> class document_cache {
  public:
    /* Returns the object, or NULL if it is not in the cache. */
    std::shared_ptr<const T> find(std::string_view document)
    {
        const std::lock_guard<std::mutex> hold(lock);
        const auto at =
            std::find_if(entries.begin(), entries.end(), [&](const entry &e) { return e.document == document; });
        if (at == entries.end()) {
            return nullptr;
        }
        entries.splice(entries.begin(), entries, at);
        return at->made;
    }

    /* Does nothing with a document of more than DOCUMENT_BYTES_MAX bytes. Two threads can make an object of the same
     * document at the same time. Then the cache keeps both objects until one of them is dropped. */
    void keep(std::string document, std::shared_ptr<const T> made)
    {
        if (document.size() > DOCUMENT_BYTES_MAX) {
            return;
        }
        const std::lock_guard<std::mutex> hold(lock);
        n_bytes += document.size();
        entries.push_front({std::move(document), std::move(made)});
        while (entries.size() > ENTRIES_MAX || n_bytes > BYTES_MAX) {
            n_bytes -= entries.back().document.size();
            entries.pop_back();
        }
    }

  private:
    /* Limits on the number of documents and on their bytes. An object takes up to 20 times the bytes of its document,
     * so BYTES_MAX stands for at most 80 MB. Usual documents have 50 to 500 kB. */
    static constexpr size_t ENTRIES_MAX = 32, BYTES_MAX = 4 << 20, DOCUMENT_BYTES_MAX = 1 << 20;

    struct entry {
        std::string document;
        std::shared_ptr<const T> made;
    };
    std::mutex lock;
    std::list<entry> entries; /* most recently used first */
    size_t n_bytes = 0;
};

#endif
