// Files of tokens: our cache, Megatron's .bin and .idx, and what is wrong with broken ones.
#include "plait/data/store.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>

#include "plait/base/error.h"
#include "plait/base/rng.h"
#include "plait/data/megatron.h"
#include "plait/data/token_cache.h"

namespace plait {
namespace {

void write_plain(const std::string& path, const std::string& content) {  // fast: not synced
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit(false);
}

using testing::HasSubstr;
using testing::ThrowsMessage;

class Stores : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = path_beside(testing::TempDir() + "stores");
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

struct Documents {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<uint8_t>> learn;
};

Documents random_documents(int64_t n, int64_t most, int64_t vocabulary) {
  Documents d;
  uint64_t draw = 0;
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random_bits(5, Stream::test, draw++) %
                                static_cast<uint64_t>(limit));
  };
  for (int64_t i = 0; i < n; ++i) {
    d.ids.emplace_back();
    d.learn.emplace_back();
    for (int64_t t = below(most); t > 0; --t) {
      d.ids.back().push_back(static_cast<int32_t>(below(vocabulary)));
      d.learn.back().push_back(static_cast<uint8_t>(below(2)));
    }
  }
  return d;
}

void write_cache(const std::string& path, const Documents& d, int64_t vocabulary, bool masked) {
  TokenCacheWriter writer(path, vocabulary, masked, false);
  for (size_t i = 0; i < d.ids.size(); ++i) {
    writer.add(d.ids[i], d.learn[i]);
    writer.end_document();
  }
  writer.commit({{"who", "test"}});
}

TEST_F(Stores, CacheGivesBackWhatWasWritten) {
  for (const int64_t vocabulary : {256, 60000, 200000})
    for (const bool masked : {false, true}) {
      const Documents d = random_documents(40, 1500, vocabulary);
      write_cache(path("c"), d, vocabulary, masked);
      const TokenCache cache(path("c"));
      cache.verify({});
      EXPECT_EQ(cache.stamp().at("who"), "test");
      ASSERT_EQ(cache.documents(), 40);
      int64_t learnable = 0;
      for (int64_t i = 0; i < 40; ++i) {
        const auto& ids = d.ids[static_cast<size_t>(i)];
        std::vector<int32_t> read(ids.size());
        std::vector<uint8_t> learn(ids.size());
        cache.read(cache.begin(i), cache.begin(i + 1), read.data(), learn.data());
        EXPECT_EQ(read, ids);
        const std::vector<uint8_t> all(ids.size(), 1);
        EXPECT_EQ(learn, masked ? d.learn[static_cast<size_t>(i)] : all);
        for (size_t t = 1; t < learn.size(); ++t) learnable += learn[t];
      }
      EXPECT_EQ(cache.learnable(), learnable);
    }
}

TEST_F(Stores, CacheNoticesDamageInEveryByte) {
  const Documents d = random_documents(3, 20, 256);
  write_cache(path("c"), d, 256, true);
  const std::string good = read_text(path("c"), 1 << 20);
  const auto verdict = [&](const std::string& bytes) {
    write_plain(path("bad"), bytes);
    try {
      TokenCache(path("bad")).verify({});
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(verdict(good));
  for (size_t i = 0; i < good.size(); i += i < 200 || i + 700 > good.size() ? 1 : 37) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_TRUE(verdict(bad)) << "byte " << i << " of " << good.size();
  }
  for (size_t n = 0; n < good.size(); n += 61) EXPECT_TRUE(verdict(good.substr(0, n))) << n;
  EXPECT_TRUE(verdict(good + "x"));
}

TEST_F(Stores, UncommittedCacheLeavesNothing) {
  {
    TokenCacheWriter writer(path("c"), 256, false, false);
    writer.add(std::vector<int32_t>(10000, 3), {});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Stores, ChecksIdsAndSaysWhere) {
  write_cache(path("c"), {{{1, 2}, {}, {3, 250, 4}}, {{1, 1}, {}, {1, 1, 1}}}, 256, false);
  const TokenCache cache(path("c"));
  check_ids(cache, "c", 251, {});
  EXPECT_THAT([&] { check_ids(cache, "c", 250, {}); },
              ThrowsMessage<Error>(
                  HasSubstr("'c': document 2, token 1: id 250 is outside the vocabulary of 250")));
}

TEST_F(Stores, MegatronGivesBackWhatWasWritten) {
  for (const int64_t vocabulary : {256, 65499, 65500, 200000}) {
    const Documents d = random_documents(30, 50, vocabulary);
    MegatronWriter writer(path("m"), vocabulary);
    for (const auto& ids : d.ids) {
      writer.add(ids);
      writer.end_document();
    }
    writer.commit();
    const MegatronStore store(path("m.idx"));
    EXPECT_EQ(store.type(), vocabulary < 65500 ? "uint16" : "int32");
    ASSERT_EQ(store.documents(), 30);
    for (int64_t i = 0; i < 30; ++i) {
      std::vector<int32_t> ids(static_cast<size_t>(store.length(i)));
      std::vector<uint8_t> learn(ids.size());
      store.read(store.begin(i), store.begin(i + 1), ids.data(), learn.data());
      EXPECT_EQ(ids, d.ids[static_cast<size_t>(i)]);
    }
  }
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> lengths{3, 0, 2, 1};
  std::vector<int64_t> pointers{0, 6, 6, 10}, borders{0, 2, 2, 4};
  uint64_t sequences = 4, documents = 4;
  std::string bytes() const {
    return magic + raw(std::vector<uint64_t>{version}) + std::string(1, static_cast<char>(code)) +
           raw(std::vector<uint64_t>{sequences, documents}) + raw(lengths) + raw(pointers) +
           raw(borders);
  }
};

TEST_F(Stores, MegatronDocumentsOfSeveralSequences) {
  write_plain(path("m.bin"), raw(std::vector<uint16_t>{1, 2, 3, 4, 5, 65535}));
  write_plain(path("m.idx"), Index().bytes());
  const MegatronStore store(path("m"));
  ASSERT_EQ(store.documents(), 3);
  EXPECT_EQ(store.length(0), 3);
  EXPECT_EQ(store.length(1), 0);
  EXPECT_EQ(store.length(2), 3);
  std::vector<int32_t> ids(3);
  std::vector<uint8_t> learn(3);
  store.read(3, 6, ids.data(), learn.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{4, 5, 65535}));
  EXPECT_THAT([&] { check_ids(store, "m", 1000, {}); },
              ThrowsMessage<Error>(HasSubstr("document 2, token 2: id 65535 is outside")));
}

TEST_F(Stores, MegatronReadsEveryType) {
  const std::vector<std::string> files = {raw(std::vector<uint8_t>{1, 200}),
                                          raw(std::vector<int8_t>{1, -3}),
                                          raw(std::vector<int16_t>{1, -3}),
                                          raw(std::vector<int32_t>{1, 70000}),
                                          raw(std::vector<int64_t>{1, int64_t{1} << 40}),
                                          "",
                                          "",
                                          raw(std::vector<uint16_t>{1, 60000})};
  const std::vector<int32_t> second{200, -3, -3, 70000, -1, 0, 0, 60000};
  for (int code = 1; code <= 8; ++code) {
    if (code == 6 || code == 7) continue;
    const auto& bin = files[static_cast<size_t>(code - 1)];
    Index index;
    index.code = static_cast<uint8_t>(code);
    index.lengths = {2};
    index.pointers = {0};
    index.borders = {0, 1};
    index.sequences = 1;
    index.documents = 2;
    write_plain(path("m.bin"), bin);
    write_plain(path("m.idx"), index.bytes());
    std::vector<int32_t> ids(2);
    std::vector<uint8_t> learn(2);
    MegatronStore(path("m")).read(0, 2, ids.data(), learn.data());
    EXPECT_EQ(ids, (std::vector<int32_t>{1, second[static_cast<size_t>(code - 1)]})) << code;
  }
}

TEST_F(Stores, MegatronRefusesEveryLie) {
  write_plain(path("m.bin"), raw(std::vector<uint16_t>{1, 2, 3, 4, 5, 6}));
  const auto error = [&](const std::function<void(Index&)>& change, const std::string& more = "") {
    Index index;
    change(index);
    write_plain(path("m.idx"), index.bytes() + more);
    try {
      MegatronStore store(path("m"));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error([](Index&) {}), "no error");
  EXPECT_THAT(error([](Index& i) { i.magic[0] = 'X'; }), HasSubstr("no index of Megatron"));
  EXPECT_THAT(error([](Index& i) { i.version = 2; }), HasSubstr("version 2"));
  EXPECT_THAT(error([](Index& i) { i.code = 0; }), HasSubstr("type code 0"));
  EXPECT_THAT(error([](Index& i) { i.code = 9; }), HasSubstr("type code 9"));
  EXPECT_THAT(error([](Index& i) { i.code = 7; }), HasSubstr("ids are float32"));
  EXPECT_THAT(error([](Index& i) { i.code = 4; }), HasSubstr("needs 12"));
  EXPECT_THAT(error([](Index& i) { i.sequences = uint64_t{1} << 62; }), HasSubstr("do not fit"));
  EXPECT_THAT(error([](Index& i) { i.documents = UINT64_MAX; }), HasSubstr("do not fit"));
  EXPECT_THAT(error([](Index& i) { i.sequences = 3; }), HasSubstr("expected"));
  EXPECT_THAT(error([](Index&) {}, "abcd"), HasSubstr("multimodal"));
  EXPECT_THAT(error([](Index& i) { i.lengths[2] = -1; }), HasSubstr("has -1 tokens"));
  EXPECT_THAT(error([](Index& i) { i.lengths[3] = 9; }), HasSubstr("ends at token 14"));
  EXPECT_THAT(error([](Index& i) { i.lengths[3] = 0; }), HasSubstr("has 12 bytes, expected 10"));
  EXPECT_THAT(error([](Index& i) { i.pointers[2] = 4; }), HasSubstr("lies at byte 4; needs 6"));
  EXPECT_THAT(error([](Index& i) { i.pointers[0] = -2; }), HasSubstr("lies at byte -2"));
  EXPECT_THAT(error([](Index& i) { i.borders[0] = 1; }), HasSubstr("begins with sequence 1"));
  EXPECT_THAT(error([](Index& i) { i.borders[2] = 1; }), HasSubstr("document 2 begins with"));
  EXPECT_THAT(error([](Index& i) { i.borders[3] = 3; }), HasSubstr("last document border"));
  EXPECT_THAT(error([](Index& i) { i.borders[3] = 5; }), HasSubstr("begins with sequence 5"));
  EXPECT_THAT(error([](Index& i) {
                i.documents = 0;
                i.borders.clear();
              }),
              HasSubstr("no document borders"));
  write_plain(path("m.idx"), "MMID");
  EXPECT_THAT([&] { MegatronStore store(path("m")); }, ThrowsMessage<Error>(HasSubstr("4 bytes")));
}

}  // namespace
}  // namespace plait
