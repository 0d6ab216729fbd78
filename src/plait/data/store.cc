#include "plait/data/store.h"

#include <algorithm>
#include <vector>

#include "plait/base/digest.h"
#include "plait/base/error.h"

namespace plait {

int64_t TokenStore::document_at(int64_t token) const {
  int64_t low = 0, high = documents();  // begin(low) <= token < begin(high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (begin(middle) <= token ? low : high) = middle;
  }
  return low;
}

std::string check_ids(const TokenStore& store, const std::string& source, int64_t vocabulary,
                      const std::function<void(int64_t, int64_t)>& progress) {
  constexpr int64_t kChunk = 1 << 20;
  std::vector<int32_t> ids(kChunk);
  std::vector<uint8_t> learn(kChunk);
  Digest128 sum;
  for (int64_t at = 0; at < store.tokens(); at += kChunk) {
    const int64_t end = std::min(at + kChunk, store.tokens());
    store.read(at, end, ids.data(), learn.data());
    for (int64_t i = at; i < end; ++i)
      if (const int32_t id = ids[static_cast<size_t>(i - at)]; id < 0 || id >= vocabulary) {
        const int64_t document = store.document_at(i);
        fail(
            "'{}': document {}, token {}: id {} is outside the vocabulary of {}; the data needs "
            "the tokenizer of this model",
            source, document, i - store.begin(document), id, vocabulary);
      }
    sum.add(ids.data(), static_cast<size_t>(end - at) * 4);
    if (progress) progress(end, store.tokens());
  }
  return sum.text();
}

}  // namespace plait
