// Data as a whole: files in, samples and batches out.
#include "plait/data/data.h"

#include <gmock/gmock.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <map>
#include <set>

#include "plait/base/error.h"
#include "plait/data/megatron.h"
#include "plait/data/tokenise.h"
#include "plait/io/files.h"
#include "plait/tokens/tokenizer.h"

namespace plait {
namespace {

void write_plain(const std::string& path, const std::string& content) {  // fast: not synced
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit(false);
}

using testing::ElementsAre;
using testing::HasSubstr;

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = path_beside(testing::TempDir() + "data");
    std::filesystem::create_directories(folder_);
    config_.slot_tokens = 16;
    config_.held_out = 0;
    config_.cache = false;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& content) {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_plain(path, content);
    return path;
  }
  std::unique_ptr<Data> open() { return Data::open(config_, *tokenizer_, renderer_); }
  std::unique_ptr<Data> open(const std::string& path) {
    config_.train = {{path}};
    return open();
  }
  std::string error(const std::string& path) {
    try {
      open(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  std::string folder_;
  DataConfig config_;
  ChatRenderer renderer_;
  std::unique_ptr<Tokenizer> tokenizer_ = byte_tokenizer();
};

std::string text(int64_t bytes) {
  std::string s;
  for (int64_t i = 0; i < bytes; ++i) s += static_cast<char>('!' + i % 89);
  return s;
}

std::string lines(int64_t n) {
  std::string s;
  for (int64_t i = 0; i < n; ++i)
    s += "{\"text\": \"document " + std::to_string(i) +
         std::string(static_cast<size_t>(i % 13), 'x') + "\"}\n";
  return s;
}

// What identifies a sample and all it holds.
std::string fingerprint(const Sample& s) {
  std::string id = fmt::format("{}/{}/{}:", s.source, s.epoch, s.slot);
  for (const Piece& p : s.pieces) id += fmt::format(" {}+{}+{}", p.document, p.begin, p.tokens);
  return id + fmt::format(" {} {} {}", fmt::join(s.tokens, ","), fmt::join(s.labels, ","),
                          fmt::join(s.learn, ","));
}

TEST_F(DataTest, SamplesDependOnSeedAndIndexAlone) {
  config_.train = {{file("a.txt", text(900))}, {file("b.jsonl", lines(30)), "auto", 0.5}};
  const auto data = open(), again = open();
  std::set<std::string> seen;
  for (const int64_t i : {700, 3, 0, 1, 2, 350, 5, 4}) {
    EXPECT_EQ(fingerprint(data->sample(i)), fingerprint(again->sample(i))) << i;
    seen.insert(fingerprint(data->sample(i)));
  }
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(data->digest(), again->digest());
  config_.seed = 2;
  const auto other = open();
  EXPECT_NE(fingerprint(other->sample(3)), fingerprint(data->sample(3)));
  EXPECT_NE(other->digest(), data->digest());
}

TEST_F(DataTest, ResumingOnAnotherLayoutGoesOnWithTheSameSamples) {
  config_.train = {{file("a.txt", text(700))}, {file("b.jsonl", lines(40)), "auto", 0.7}};
  config_.packing = "whole";
  // Tokens of every slot of steps [from, to), in the order of the samples.
  const auto stream = [&](int64_t microbatches, int64_t slots, int64_t from, int64_t to) {
    const auto data = open();  // a process of its own
    std::vector<std::vector<double>> rows;
    for (int64_t step = from; step < to; ++step) {
      const Batch batch = data->training_batch({microbatches, slots, 16, Dtype::f64}, step);
      for (const HostTensors& m : batch.microbatches)
        for (int64_t s = 0; s < slots; ++s) {
          std::vector<double> row;
          for (const char* name : {"tokens", "labels", "positions", "weights"})
            for (int64_t i = 0; i < 16; ++i) row.push_back(m.at(name).at(s * 16 + i));
          rows.push_back(row);
        }
    }
    return rows;
  };
  const auto whole = stream(3, 4, 0, 20);
  auto resumed = stream(3, 4, 0, 7);
  for (const auto& [m, s, from, to] :
       {std::array<int64_t, 4>{12, 1, 7, 8}, {1, 12, 8, 13}, {2, 6, 13, 14}, {4, 3, 14, 20}})
    for (auto& row : stream(m, s, from, to)) resumed.push_back(row);
  EXPECT_EQ(resumed, whole);
}

TEST_F(DataTest, EveryEpochHoldsEveryTokenOnceAndLabelsFollow) {
  config_.train = {{file("b.jsonl", lines(40))}};
  for (const char* packing : {"packed", "whole", "padded"}) {
    config_.packing = packing;
    const auto data = open();
    const int64_t slots = data->report().training[0].slots;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::map<std::pair<int64_t, int64_t>, int32_t> tokens, labels;
      for (int64_t i = epoch * slots; i < (epoch + 1) * slots; ++i) {
        const Sample s = data->sample(i);
        EXPECT_EQ(s.epoch, epoch);
        int64_t at = 0, number = 0;
        for (const Piece& p : s.pieces) {
          for (int64_t t = 0; t < p.tokens; ++t, ++at) {
            const auto key = std::pair(p.document, p.begin + t);
            const auto here = static_cast<size_t>(at);
            EXPECT_TRUE(tokens.emplace(key, s.tokens[here]).second);
            EXPECT_EQ(s.positions[here], t);
            EXPECT_EQ(s.sequences[here], number);
            if (s.learn[here] != 0) labels[{key.first, key.second + 1}] = s.labels[here];
          }
          ++number;
        }
        for (int64_t first = at; at < 16; ++at) {
          EXPECT_EQ(s.learn[static_cast<size_t>(at)], 0);
          EXPECT_EQ(s.sequences[static_cast<size_t>(at)], number);
          EXPECT_EQ(s.positions[static_cast<size_t>(at)], at - first);
        }
      }
      EXPECT_EQ(static_cast<int64_t>(tokens.size()), data->report().training[0].tokens);
      // Every token but the first of each document is a label once, also across slots.
      EXPECT_EQ(labels.size(), tokens.size() - 40);
      for (const auto& [key, label] : labels) EXPECT_EQ(label, tokens.at(key));
    }
  }
}

TEST_F(DataTest, WeightsAreOneOverTheTokensOfTheWholeStep) {
  std::string s;
  for (int i = 0; i < 20; ++i)
    s += "{\"prompt\": \"abc\", \"completion\": \"" +
         std::string(static_cast<size_t>(1 + i % 7), 'z') + "\"}\n";
  config_.packing = "padded";
  const auto data = open(file("p.jsonl", s));
  StepFacts facts;
  const Batch batch = data->training_batch({4, 3, 16, Dtype::f64}, 2, &facts);
  double sum = 0;
  int64_t counted = 0;
  for (const HostTensors& m : batch.microbatches)
    for (int64_t i = 0; i < 48; ++i) {
      const double w = m.at("weights").at(i);
      sum += w;
      counted += w > 0 ? 1 : 0;
      if (w > 0) {
        EXPECT_DOUBLE_EQ(w, 1 / static_cast<double>(facts.labelled));
        EXPECT_EQ(m.at("labels").at(i), 'z');
      }
    }
  EXPECT_EQ(counted, facts.labelled);
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_THAT(facts.epochs, ElementsAre(36.0 / 20));
  config_.learn_all = true;
  open()->training_batch({4, 3, 16, Dtype::f64}, 2, &facts);
  EXPECT_EQ(facts.labelled, facts.tokens - 12);
}

TEST_F(DataTest, AStepWithNothingToLearnHasWeightsOfZero) {
  std::string s = "{\"prompt\": \"abc\", \"completion\": \"d\"}\n";
  for (int i = 0; i < 7; ++i) s += "{\"prompt\": \"abc\", \"completion\": \"\"}\n";
  config_.packing = "padded";
  const auto data = open(file("p.jsonl", s));
  int64_t empty = 0;
  for (int64_t step = 0; step < 2; ++step) {
    StepFacts facts;
    const Batch batch = data->training_batch({1, 4, 16, Dtype::f32}, step, &facts);
    if (facts.labelled > 0) continue;
    ++empty;
    for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(batch.microbatches[0].at("weights").at(i), 0);
  }
  EXPECT_EQ(empty, 1);
  EXPECT_EQ(data->report().training[0].unlearnable_documents, 7);
}

std::string examples(int64_t n, int64_t answer) {
  std::string s;
  for (int64_t i = 0; i < n; ++i)
    s += "{\"prompt\": \"abcde\", \"completion\": \"" +
         std::string(static_cast<size_t>(answer), 'z') + "\"}\n";
  return s;
}

TEST_F(DataTest, NothingToLearnAtAllIsRefused) {
  const std::string empty = file("p.jsonl", examples(5, 0));
  EXPECT_THAT(error(empty), HasSubstr("p.jsonl': nothing to learn: none of 5 examples has an"));
  EXPECT_THAT(error(file("q.jsonl", "{\"prompt\": \"a\", \"chosen\": \"\", \"rejected\": \"\"}")),
              HasSubstr("nothing to learn"));
  EXPECT_THAT(error(file("t.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n")),
              HasSubstr("none of 2 documents has two tokens"));
  config_.train = {{file("a.txt", text(90))}};
  config_.validation = {{empty}};
  EXPECT_THROW(open(), Error);
  config_.validation.clear();
  config_.learn_all = true;
  const auto data = open(empty);  // five prompts of 5
  EXPECT_EQ(data->sample(0).labelled() + data->sample(1).labelled(), 20);
}

TEST_F(DataTest, ExamplesAreNotCutUnlessAskedTo) {
  const std::string path = file("p.jsonl", examples(30, 3)), plain = file("a.txt", text(200));
  config_.train = {{path}, {plain}};
  config_.validation = {{path}, {plain}};
  const auto data = open();
  EXPECT_EQ(data->report().training[0].packing, "whole");
  EXPECT_EQ(data->report().training[1].packing, "packed");
  EXPECT_EQ(data->report().validation[0].packing, "whole");
  EXPECT_EQ(data->report().validation[1].packing, "packed");
  EXPECT_TRUE(data->report().notes.empty());
  for (int64_t i = 0; i < 40; ++i)
    if (const Sample s = data->sample(i); s.source == 0) {
      for (const Piece& p : s.pieces)
        EXPECT_EQ(std::pair(p.begin, p.tokens), std::pair(int64_t{0}, int64_t{8}));
    }
  config_.slot_tokens = 12;
  config_.packing = "packed";
  const auto cut = open();
  EXPECT_EQ(cut->report().validation[0].split_examples, 10);  // 240 tokens: cut at 12, 36, ...
  EXPECT_GE(cut->report().training[0].split_examples, 10);
  EXPECT_THAT(cut->report().notes, testing::Contains(HasSubstr("10 of 30 examples are cut")));
}

TEST_F(DataTest, TheDigestHoldsThePackingThatIsUsed) {
  const auto digest_of = [&](const char* packing, const std::string& path) {
    config_.packing = packing;
    return open(path)->digest();
  };
  const std::string path = file("p.jsonl", examples(30, 3)), plain = file("a.txt", text(200));
  EXPECT_EQ(digest_of("auto", path), digest_of("whole", path));
  EXPECT_NE(digest_of("auto", path), digest_of("packed", path));
  EXPECT_EQ(digest_of("auto", plain), digest_of("packed", plain));
  EXPECT_NE(digest_of("auto", plain), digest_of("whole", plain));
}

TEST_F(DataTest, HoldsOutTheEndOfAText) {
  config_.held_out = 0.05;
  config_.slot_tokens = 10;
  const auto data = open(file("a.txt", text(1000)));
  const std::vector<int32_t> training = data->training_tokens(), held = data->validation_tokens();
  EXPECT_EQ(training.size(), 950u);
  EXPECT_EQ(held.size(), 50u);
  EXPECT_EQ(tokenizer_->decode(training) + tokenizer_->decode(held), text(1000));
  EXPECT_EQ(open(file("b.txt", text(30)))->validation_tokens().size(), 11u);
  EXPECT_THAT(error(file("c.txt", text(21))), HasSubstr("has 21 tokens; needs 22"));
}

TEST_F(DataTest, HoldsOutTheSameDocumentsUnderEverySeed) {
  config_.held_out = 0.1;
  config_.packing = "whole";
  const auto data = open(file("a.jsonl", lines(100)));
  EXPECT_EQ(data->report().training[0].training_documents, 90);
  EXPECT_EQ(data->report().training[0].validation_documents, 10);
  config_.seed = 99;
  const auto other = open();
  EXPECT_EQ(other->validation_tokens(), data->validation_tokens());
  EXPECT_EQ(other->training_tokens(), data->training_tokens());
  EXPECT_THAT(error(file("one.jsonl", lines(1))), HasSubstr("none can be held out"));
}

TEST_F(DataTest, ValidationCoversEveryLabelOnceInOrder) {
  config_.held_out = 0.05;
  config_.slot_tokens = 8;
  const auto data = open(file("a.txt", text(2000)));  // 100 held out: 13 samples
  const BatchLayout layout{2, 5, 8, Dtype::f64};
  ASSERT_EQ(data->validation_batches(layout), 2);
  std::vector<int32_t> seen;
  for (int64_t i = 0; i < 2; ++i) {
    int64_t labelled = 0;
    double weight = 0;
    const Batch batch = data->validation_batch(layout, i, labelled);
    EXPECT_EQ(labelled, i == 0 ? 80 : 19);
    for (const HostTensors& m : batch.microbatches)
      for (int64_t t = 0; t < 40; ++t) {
        weight += m.at("weights").at(t);
        if (m.at("weights").at(t) > 0) seen.push_back(static_cast<int32_t>(m.at("labels").at(t)));
      }
    EXPECT_NEAR(weight, 1, 1e-12);
  }
  EXPECT_EQ(data->validation_labels(layout, 2), 99);
  EXPECT_EQ(data->validation_labels(layout, 1), 80);
  const std::vector<int32_t> held = data->validation_tokens();
  EXPECT_EQ(seen, std::vector<int32_t>(held.begin() + 1, held.end()));
}

TEST_F(DataTest, ValidationOfItsOwn) {
  config_.held_out = 0.5;  // not used then
  config_.validation = {{file("v.txt", text(40))}};
  const auto data = open(file("a.txt", text(300)));
  EXPECT_EQ(data->training_tokens().size(), 300u);
  EXPECT_EQ(data->validation_tokens().size(), 40u);
  ASSERT_EQ(data->report().validation.size(), 1u);
  EXPECT_EQ(data->report().validation[0].validation_tokens, 40);
}

TEST_F(DataTest, PreferencePairsShareASlot) {
  std::string s;
  for (int i = 0; i < 9; ++i)
    s += R"({"prompt": "q", "chosen": "good", "rejected": "bad"})"
         "\n";
  config_.slot_tokens = 20;  // 9 tokens a pair: two in a slot
  const auto data = open(file("p.jsonl", s));
  EXPECT_TRUE(data->paired());
  EXPECT_EQ(data->report().training[0].documents, 9);
  StepFacts facts;
  const Batch batch = data->training_batch({1, 5, 20, Dtype::f32}, 0, &facts);
  EXPECT_EQ(facts.pairs, 9);
  EXPECT_EQ(facts.labelled, 9 * 7);
  const Sample sample = data->sample(0);
  const std::vector<int32_t> two{1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 0, 0};
  const std::vector<int32_t> one{1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(sample.pairs, sample.pieces.size() == 4 ? two : one);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_EQ(sample.learn[i],
              (i < 4 || (i >= 5 && i < 8) ||
               (sample.pieces.size() == 4 && ((i >= 9 && i < 13) || (i >= 14 && i < 17))))
                  ? 1
                  : 0);
  const HostTensors& m = batch.microbatches[0];
  for (int64_t i = 0; i < 100; ++i)
    EXPECT_TRUE(m.at("weights").at(i) == 0 || m.at("weights").at(i) == 1);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_EQ(m.at("pairs").at(static_cast<int64_t>(i)), sample.pairs[i]);
}

TEST_F(DataTest, LongPairsAreShortenedOrDropped) {
  const std::string pairs =
      R"({"prompt": "q", "chosen": "good", "rejected": "bad"})"
      "\n"
      R"({"prompt": "q", "chosen": "ggggggggggggggggggggggggg", "rejected": "bad"})"
      "\n"
      R"({"prompt": "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "chosen": "g", "rejected": "b"})"
      "\n";
  const auto data = open(file("p.jsonl", pairs));
  const SourceReport& r = data->report().training[0];
  EXPECT_EQ(r.truncated_pairs, 1);
  EXPECT_EQ(r.dropped_pairs, 1);  // no room for its answers
  EXPECT_EQ(r.training_documents, 2);
  config_.long_pairs = "drop";
  EXPECT_EQ(open()->report().training[0].dropped_pairs, 2);
}

TEST_F(DataTest, FoldersPatternsAndSeparators) {
  file("f/a.txt", text(100));
  file("f/deep/b.txt", text(50));
  file("f/.hidden", "x");
  file("f/empty.txt", "");
  auto data = open(folder_ + "/f");
  EXPECT_EQ(data->report().training[0].files, 2);
  EXPECT_EQ(data->report().training[0].documents, 2);
  EXPECT_THAT(data->report().notes, testing::Contains(HasSubstr("1 empty files left out")));
  EXPECT_EQ(open(folder_ + "/f/*.txt")->report().training[0].tokens, 100);
  config_.separator = "<|end|>";
  data = open(file("s.txt", text(20) + "<|end|>" + text(30) + "<|end|>\n<|end|>" + text(5)));
  EXPECT_EQ(data->report().training[0].documents, 3);
  EXPECT_EQ(data->training_tokens().size(), 55u);
}

TEST_F(DataTest, PackedFilesAreUnpacked) {
  const std::string content = lines(3000);
  std::string zst(ZSTD_compressBound(content.size()), ' ');
  zst.resize(ZSTD_compress(zst.data(), zst.size(), content.data(), content.size(), 3));
  const std::string gz = folder_ + "/a.jsonl.gz";
  for (const size_t half : {0, 1}) {  // two parts, as of `cat a.gz b.gz`
    gzFile out = gzopen(gz.c_str(), half == 0 ? "wb" : "ab");
    const size_t cut = content.find('\n', content.size() / 2) + 1;
    const std::string part = half == 0 ? content.substr(0, cut) : content.substr(cut);
    gzwrite(out, part.data(), static_cast<unsigned>(part.size()));
    gzclose(out);
  }
  const auto plain = open(file("a.jsonl", content))->training_tokens();
  EXPECT_EQ(open(file("a.zst", zst + zst.substr(0, 0)))->training_tokens(), plain);
  EXPECT_EQ(open(gz)->training_tokens(), plain);
  EXPECT_THAT(error(file("cut.zst", zst.substr(0, zst.size() - 9))), HasSubstr("ends too soon"));
  EXPECT_THAT(error(file("cut.gz", read_text(gz, 1 << 20).substr(0, 300))),
              HasSubstr("ends too soon"));
  std::string broken = zst;
  broken[broken.size() / 2] ^= 0x55;
  EXPECT_THAT(error(file("bad.zst", broken)), HasSubstr("zst"));
  EXPECT_THAT(error(file("a.bz2", "BZh91AY&SY")), HasSubstr("packed as bzip2"));
}

TEST_F(DataTest, MegatronFilesAreASource) {
  MegatronWriter writer(folder_ + "/m", 256);
  for (int i = 0; i < 5; ++i) {
    writer.add(std::vector<int32_t>(20, i));
    writer.end_document();
  }
  writer.commit();
  const auto data = open(folder_ + "/m");
  EXPECT_EQ(data->report().training[0].documents, 5);
  EXPECT_EQ(data->training_tokens().size(), 100u);
  config_.vocabulary = 4;
  EXPECT_THAT(error(folder_ + "/m.bin"),
              HasSubstr("document 4, token 0: id 4 is outside the vocabulary of 4"));
}

TEST_F(DataTest, SaysWhereAndWhatIsWrong) {
  EXPECT_THAT(error("/nowhere/t.txt"), HasSubstr("'/nowhere/t.txt' does not exist"));
  EXPECT_THAT(error(file("e.txt", "")), HasSubstr("e.txt' is empty"));
  EXPECT_THAT(error(file("w.txt", " \n \n")), HasSubstr("no documents"));
  EXPECT_THAT(error(file("b.jsonl", "\n\n")), HasSubstr("only blank lines"));
  EXPECT_THAT(error(file("short.txt", "abc")), HasSubstr("3 training tokens, less than one slot"));
  const std::string good = "{\"text\": \"0123456789abcdefgh\"}\n";
  EXPECT_THAT(error(file("j.jsonl", good + "\n{\"text\": \"a\n")),
              HasSubstr("j.jsonl:3: line: not JSON"));
  EXPECT_THAT(error(file("k.jsonl", good + "{\"txt\": \"a\"}\n")),
              HasSubstr("k.jsonl:2: an object"));
  EXPECT_THAT(error(file("l.jsonl", good + "{\"messages\": []}\n")),
              HasSubstr("l.jsonl:2: chat messages, where the file began with texts"));
  EXPECT_THAT(error(file("m.jsonl", good + "{\"text\": \"a\", \"text\": \"b\"}\n")),
              HasSubstr("'text' stands twice"));
  EXPECT_THAT(error(file("u.jsonl", good + "{\"text\": \"ab\xff\"}\n")),
              HasSubstr("u.jsonl:2: byte 0xff at offset 12 of the line is not valid UTF-8"));
  EXPECT_THAT(
      error(file("c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n")),
      HasSubstr("c.jsonl:1: chat messages, and the model has no chat template"));
  config_.vocabulary = 40;
  EXPECT_THAT(error(file("v.txt", text(100))),
              HasSubstr("v.txt': document 0, token 7: id 40 is outside the vocabulary of 40"));
  config_.vocabulary = 0;
  config_.slot_tokens = 0;
  EXPECT_THAT(error(file("g.txt", text(100))), HasSubstr("slots of 0 tokens"));
  config_.slot_tokens = 16;
  config_.packing = "tight";
  EXPECT_THAT(error(file("g.txt", text(100))), HasSubstr("unknown packing 'tight'"));
  config_.packing = "auto";
  config_.train = {{file("g.txt", text(100))},
                   {file("p.jsonl", "{\"chosen\": \"a\", \"rejected\": \"b\"}")}};
  EXPECT_THROW(open(), Error);
}

TEST_F(DataTest, BadLinesMayBeSkippedAndAreCounted) {
  config_.skip_bad_lines = true;
  const auto data = open(file("j.jsonl", lines(20) + "{oops}\n" + lines(20) + "[]\n"));
  EXPECT_EQ(data->report().training[0].skipped_lines, 2);
  EXPECT_EQ(data->report().training[0].documents, 40);
  EXPECT_THAT(data->report().notes, testing::Contains(HasSubstr("j.jsonl:21: line: not JSON")));
}

TEST_F(DataTest, DetectsTheFormat) {
  const auto format = [&](const std::string& path) {
    return open(path)->report().training[0].format;
  };
  EXPECT_EQ(format(file("a", lines(9))), "jsonl (texts), from its first line");
  EXPECT_EQ(format(file("b.jsonl", lines(9))), "jsonl (texts), from its name");
  EXPECT_EQ(format(file("c", "{ this is C code\n" + text(60))), "text, from its first line");
  EXPECT_EQ(format(file("d", "\xef\xbb\xbf" + lines(9))), "jsonl (texts), from its first line");
  config_.train = {{folder_ + "/b.jsonl", "text"}};
  EXPECT_EQ(open()->report().training[0].format, "text, as asked");
}

TEST_F(DataTest, RefusesAFolderOfSeveralFormats) {
  const std::string f = folder_ + "/f";
  file("f/README.md", "# About\n" + text(90));
  file("f/train.jsonl", lines(9));
  EXPECT_THAT(error(f), HasSubstr("/f' holds files of different formats: 'README.md' is text, "
                                  "'train.jsonl' is jsonl (texts); name the files"));
  EXPECT_THAT(error(f + "/*"), HasSubstr("different formats"));
  EXPECT_EQ(open(f + "/*.jsonl")->report().training[0].documents, 9);
  config_.train = {{f, "text"}};
  EXPECT_EQ(open()->report().training[0].documents, 2);
  file("g/a.jsonl", lines(9));
  file("g/b.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  EXPECT_THAT(
      error(folder_ + "/g"),
      HasSubstr("'a.jsonl' is jsonl (texts), 'b.jsonl' is jsonl (prompts and completions)"));
}

TEST_F(DataTest, RefusesWhatIsNoText) {
  file("m/a.txt", text(90));
  file("m/tokenizer.json", "{\n  \"version\": \"1.0\"\n}\n");
  EXPECT_THAT(error(folder_ + "/m"),
              HasSubstr("'a.txt' is text, 'tokenizer.json' is JSON, but no JSON lines"));
  EXPECT_THAT(error(folder_ + "/m/tokenizer.json"), HasSubstr("tokenizer.json:1: line: not JSON"));
  const std::string zeros(8, '\0');
  file("s/a.txt", text(90));
  file("s/model.safetensors", "abc" + zeros + text(90));
  EXPECT_THAT(error(folder_ + "/s"), HasSubstr("'model.safetensors' is binary, no text"));
  EXPECT_THAT(error(folder_ + "/s/*.safetensors"), HasSubstr("is no text: byte 3 is 0"));
  config_.train = {{folder_ + "/s/model.safetensors", "text"}};
  EXPECT_EQ(open()->report().training[0].tokens, 101);  // bytes, as asked
  MegatronWriter writer(folder_ + "/s/m", 256);
  writer.add(std::vector<int32_t>(20, 1));
  writer.end_document();
  writer.commit();
  EXPECT_THAT(error(folder_ + "/s"), HasSubstr("'a.txt' is text, 'm.bin' is Megatron's"));
  EXPECT_THAT(error(folder_ + "/s/m.*"), HasSubstr("name them one by one: '" + folder_ + "/s/m'"));
}

TEST_F(DataTest, ANameOfJsonLinesIsNeverReadAsText) {
  for (const char* name : {"a.jsonl", "a.json", "a.ndjson"}) {
    EXPECT_THAT(error(file(name, "# a comment\n" + lines(20))),
                HasSubstr(std::string(name) + ":1: line: not JSON"));
    EXPECT_THAT(error(file(name, "\n// a comment\n" + lines(20))),
                HasSubstr(std::string(name) + ":2: line: not JSON"));
    EXPECT_EQ(open(file(name, "\n \n" + lines(20)))->report().training[0].documents, 20);
  }
  EXPECT_EQ(open(file("b", "\n \n" + lines(20)))->report().training[0].documents, 20);
  config_.skip_bad_lines = true;
  const auto data = open(file("a.jsonl", "# a comment\n" + lines(20)));
  EXPECT_EQ(data->report().training[0].documents, 20);
  EXPECT_EQ(data->report().training[0].skipped_lines, 1);
}

class CacheTest : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    config_.cache = true;
  }
  std::string state(const std::string& path) { return open(path)->report().training[0].cache; }
};

TEST_F(CacheTest, IsWrittenOnceAndReadThen) {
  const std::string path = file("a.txt", text(500));
  EXPECT_THAT(state(path), HasSubstr("written to '" + folder_ + "/.a.txt.plait-tokens'"));
  const auto first = open(path);
  EXPECT_THAT(first->report().training[0].cache, HasSubstr("read from"));
  config_.cache = false;
  EXPECT_EQ(open(path)->digest(), first->digest());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);  // no rest
}

TEST_F(CacheTest, NoticesEveryChange) {
  const std::string path = file("a.txt", text(500));
  state(path);
  file("a.txt", "?" + text(499));  // the same size
  EXPECT_THAT(state(path), HasSubstr("a.txt' changed"));
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now());
  EXPECT_THAT(state(path), HasSubstr("read from"));  // touched, not changed
  config_.separator = "A";
  EXPECT_THAT(state(path), HasSubstr("the options changed"));
  config_.separator = "";
  EXPECT_THAT(state(path), HasSubstr("the options changed"));
  tokenizer_->set_special_ids({.bos = {}, .eos = 0, .pad = {}, .unk = {}});
  EXPECT_THAT(state(path), HasSubstr("the tokenizer changed"));
  EXPECT_EQ(open(path)->training_tokens().back(), 0);
  EXPECT_THAT(state(path), HasSubstr("read from"));
}

TEST_F(CacheTest, NoticesAnotherTemplate) {
  renderer_ = {[](const Json& m, const Json&, bool open) {
                 std::string s;
                 for (const Json& one : m) s += one.at("content").get<std::string>() + ";";
                 return s + (open ? ">" : "");
               },
               7};
  const std::string line = R"({"messages": [{"role": "user", "content": "question"},)"
                           R"({"role": "assistant", "content": "answer"}]})"
                           "\n";
  const std::string path = file("c.jsonl", line + line);
  state(path);
  EXPECT_THAT(state(path), HasSubstr("read from"));
  renderer_.digest = 8;
  EXPECT_THAT(state(path), HasSubstr("the chat template changed"));
}

TEST_F(CacheTest, NoticesAFileAddedToAFolder) {
  file("f/a.txt", text(100));
  state(folder_ + "/f");
  file("f/b.txt", text(100));
  EXPECT_THAT(state(folder_ + "/f"), HasSubstr("the list of files changed"));
  EXPECT_THAT(state(folder_ + "/f/"), HasSubstr("read from"));
}

TEST_F(CacheTest, DamageIsRepaired) {
  const std::string path = file("a.txt", text(9000)), cache = folder_ + "/.a.txt.plait-tokens";
  const auto tokens = open(path)->training_tokens();
  std::string bytes = read_text(cache, 1 << 20);
  for (const size_t at : {size_t{3}, size_t{5000}, bytes.size() - 100, bytes.size() - 20}) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_plain(cache, bad);
    const auto data = open(path);
    EXPECT_THAT(data->report().training[0].cache, HasSubstr("it is damaged"));
    EXPECT_EQ(data->training_tokens(), tokens);
    EXPECT_EQ(read_text(cache, 1 << 20).size(), bytes.size());
  }
  write_plain(cache, bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(state(path), HasSubstr("it is damaged"));
}

TEST_F(CacheTest, LiesInItsFolderWhenOneIsGiven) {
  config_.cache_folder = folder_ + "/caches";
  const std::string path = file("a.txt", text(500));
  EXPECT_THAT(state(path), HasSubstr(folder_ + "/caches/.a.txt-"));
  EXPECT_FALSE(file_exists(folder_ + "/.a.txt.plait-tokens"));
  config_.cache_folder = path + "/no-folder";  // cannot be made
  const auto data = open(path);
  EXPECT_EQ(data->report().training[0].cache, "none kept");
  EXPECT_THAT(data->report().notes, testing::Contains(HasSubstr("no cache of")));
}

TEST_F(CacheTest, AFailedRunLeavesNothing) {
  EXPECT_NE(error(file("j.jsonl", lines(5000) + "{oops}\n")), "no error");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(DataTest, ThreadsDoNotChangeTheTokens) {
  config_.threads = 1;
  const auto one = open(file("j.jsonl", lines(20000)));
  config_.threads = 5;
  EXPECT_EQ(open()->digest(), one->digest());
}

TEST_F(DataTest, ProgressReachesTheEnd) {
  config_.train = {{file("j.jsonl", lines(30000))}};
  int64_t last = 0, all = 0, calls = 0;
  Data::open(config_, *tokenizer_, {}, [&](const std::string&, int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
    ++calls;
  });
  EXPECT_GE(calls, 3);
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, InputFile(folder_ + "/j.jsonl").size());
}

}  // namespace
}  // namespace plait
