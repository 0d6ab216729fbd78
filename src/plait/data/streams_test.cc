#include "plait/data/streams.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "plait/base/error.h"

namespace plait {
namespace {

void write_plain(const std::string& path, const std::string& content) {  // fast: not synced
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit(false);
}

class Streams : public testing::Test {
 protected:
  void SetUp() override { path_ = path_beside(testing::TempDir() + "stream"); }
  void TearDown() override { std::filesystem::remove(path_); }
  std::vector<std::string> lines(const std::string& content) {
    write_plain(path_, content);
    LineReader reader(path_);
    std::vector<std::string> all;
    for (std::string line; reader.next(line);) all.push_back(line);
    EXPECT_EQ(reader.number(), static_cast<int64_t>(all.size()));
    Digest128 sum;
    sum.add(content.data(), content.size());
    EXPECT_EQ(reader.bytes().digest(), sum.text());
    return all;
  }
  std::vector<DocumentReader::TextPiece> pieces(const std::string& content,
                                                const std::string& separator, size_t limit) {
    write_plain(path_, content);
    DocumentReader reader(path_, separator, limit);
    std::vector<DocumentReader::TextPiece> all;
    for (DocumentReader::TextPiece piece; reader.next(piece);) all.push_back(piece);
    return all;
  }
  std::string path_;
};

using Lines = std::vector<std::string>;

TEST_F(Streams, Lines) {
  EXPECT_EQ(lines(""), Lines{});
  EXPECT_EQ(lines("a"), Lines{"a"});
  EXPECT_EQ(lines("a\n"), Lines{"a"});
  EXPECT_EQ(lines("a\n\nb\r\nc"), (Lines{"a", "", "b", "c"}));
  EXPECT_EQ(lines("\n"), Lines{""});
  EXPECT_EQ(lines("\xef\xbb\xbf"
                  "a\n\xef\xbb\xbf"
                  "b"),
            (Lines{"a",
                   "\xef\xbb\xbf"
                   "b"}));
  const std::string large(1000000, 'x');  // longer than what is read at once
  EXPECT_EQ(lines(large + "\n" + large + "y\nz"), (Lines{large, large + "y", "z"}));
}

TEST_F(Streams, PiecesAddUpToTheText) {
  std::string content;
  for (int i = 0; i < 3000; ++i) content += "word" + std::to_string(i) + (i % 9 == 0 ? "\n" : " ");
  for (const size_t limit : {size_t{7}, size_t{100}, size_t{5000}, size_t{1} << 20}) {
    std::string all;
    const auto parts = pieces(content, "", limit);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_LE(parts[i].text.size(), limit);
      EXPECT_EQ(parts[i].first, i == 0);
      EXPECT_EQ(parts[i].last, i + 1 == parts.size());
      EXPECT_EQ(parts[i].offset, static_cast<int64_t>(all.size()));
      EXPECT_EQ(parts[i].line, 1 + std::count(all.begin(), all.end(), '\n'));
      all += parts[i].text;
    }
    EXPECT_EQ(all, content);
  }
}

TEST_F(Streams, DocumentsBetweenSeparators) {
  for (const size_t limit : {size_t{4}, size_t{1000}}) {
    Lines documents;
    for (const auto& p : pieces("one tw<s>three<s><s>four<", "<s>", limit)) {
      if (p.first) documents.emplace_back();
      documents.back() += p.text;
    }
    EXPECT_EQ(documents, (Lines{"one tw", "three", "four<"})) << limit;
  }
}

TEST_F(Streams, CutsBeforeTheSpaceBetweenLettersElseBetweenCharacters) {
  EXPECT_EQ(cut_position("hello world again", 12), 11u);
  EXPECT_EQ(cut_position("abc. def. ghi", 9), 9u);             // no letter before a space
  EXPECT_EQ(cut_position("\u00e4\u00e4\u00e4\u00e4", 5), 4u);  // two bytes each
  EXPECT_EQ(cut_position(std::string(20, '\x80'), 9), 9u);     // no UTF-8 at all
}

}  // namespace
}  // namespace plait
