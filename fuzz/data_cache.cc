#include <cstring>

#include "fuzz.h"
#include "plait/base/digest.h"
#include "plait/base/error.h"
#include "plait/data/token_cache.h"

namespace plait {

namespace {

// The digest over the tables would turn nearly every input away at the door, so the input is read
// twice: as it is, and with that digest set right, so that what lies behind it is tried as well.
std::string with_digest(std::string_view input) {
  std::string s(input);
  int64_t header_at = 0, documents = 0;
  if (s.size() < 48) return s;
  const size_t trailer = s.size() - 40;
  std::memcpy(&header_at, &s[trailer], 8);
  std::memcpy(&documents, &s[trailer + 16], 8);
  if (header_at < 0 || header_at > static_cast<int64_t>(trailer) || documents < 0 ||
      documents > header_at / 8 - 1)
    return s;
  const auto header = static_cast<size_t>(header_at);
  const size_t table = header - 8 * (static_cast<size_t>(documents) + 1);
  const std::string_view all(s);
  const uint64_t sum = digest(fmt::format("{} {}", digest(all.substr(table, header - table)),
                                          digest(all.substr(header, trailer - header))));
  std::memcpy(&s[trailer + 24], &sum, 8);
  return s;
}

void read(const std::string& path) {
  const TokenCache cache(path);
  cache.verify({});
  for (int64_t d = 0; d < cache.documents(); ++d) {
    std::vector<int32_t> ids(static_cast<size_t>(cache.length(d)));
    std::vector<uint8_t> learn(ids.size());
    cache.read(cache.begin(d), cache.begin(d + 1), ids.data(), learn.data());
  }
}

void run(std::string_view input) {
  try {
    read(fuzz_file("cache", input));
  } catch (const Error&) {
  }
  read(fuzz_file("cache", with_digest(input)));
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const bool masked : {false, true}) {
    const std::string path = fuzz_folder() + "/seed.cache";
    TokenCacheWriter writer(path, 256, masked, masked);
    for (const size_t n : {5, 3}) {
      writer.add(std::vector<int32_t>(n, 7), std::vector<uint8_t>(n, 1));
      writer.end_document();
    }
    writer.commit({{"tokenizer", "0"}});
    all.push_back(read_text(path, 1 << 20));
  }
  return all;
}

}  // namespace

FuzzTarget fuzz_data_cache() { return {"data_cache", run, seeds}; }

}  // namespace plait
