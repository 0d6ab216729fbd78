#include "plait/base/text.h"

#include <gtest/gtest.h>

#include "plait/model/families.h"
#include "plait/model/model.h"

namespace plait {
namespace {

constexpr const char* kTiny = R"(# comments and empty lines go
model "tiny model"
dtype f64

extent T = 8 by 4   # two slots
extent D = 6
extent V = 5
input tokens i32[T]
input labels i32[T]
input weights float[T]
param table [V, D] normal 0.3 file "fused one" rows 2 of 7
param rest [2, D] zeros frozen file "fused one" rows 0 of 7
param norm [D] ones
param head [V, D] normal 1e-05 file head transposed
block embed (tokens i32[T])
    (table float[V, D], rest float[2, D]) {
  return = embedding(table, tokens)   # a value may be called like a keyword
  return return
}
block head (x float[T, D], labels i32[T], weights float[T]) (norm float[D], head float[V, D]) {
  n = rms_norm(x, norm) eps=1e-05
  logits = matmul(n, head) trans_b=1
  lse = row_lse(logits)
  picked = pick(logits, labels)
  nll = sub(lse, picked)
  loss = dot(weights, nll)
  return loss, nll
}
x = embed (tokens) (table, rest) as embed
loss, each = head (x, labels, weights) (norm, head) as "the head"
loss loss
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    parse_model(text, "m.plait");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ModelText, FrozenAndUniformParameters) {
  const std::string text =
      replaced(kTiny, "param norm [D] ones", "param norm [D] uniform 0.25 frozen");
  const Model m = parse_model(text, "m.plait");
  EXPECT_TRUE(m.params[1].frozen);
  EXPECT_TRUE(m.params[2].frozen);
  EXPECT_FALSE(m.params[0].frozen);
  EXPECT_EQ(m.trained_count(), 2 * 5 * 6);
  EXPECT_EQ(m.parameter_count(), 2 * 5 * 6 + 2 * 6 + 6);
  EXPECT_EQ(print_model(parse_model(print_model(m), "printed")), print_model(m));
  EXPECT_NE(print_model(m).find("param norm [D] uniform 0.25 frozen\n"), std::string::npos);
  const HostTensor drawn = initial_parameters(m, 3).at("norm");
  double low = 1, high = -1;
  for (int64_t i = 0; i < drawn.elements(); ++i) {
    low = std::min(low, drawn.at(i));
    high = std::max(high, drawn.at(i));
  }
  EXPECT_GE(low, -0.25);
  EXPECT_LT(high, 0.25);
  EXPECT_GT(high - low, 0.05);
}

TEST(ModelText, ParsesWhatItSays) {
  const Model m = parse_model(kTiny, "m.plait");
  EXPECT_EQ(m.name, "tiny model");
  EXPECT_EQ(m.dtype, Dtype::f64);
  EXPECT_EQ(m.extent("T"), (Extent{"T", 8, 4}));
  EXPECT_EQ(m.inputs.size(), 3U);
  EXPECT_EQ(m.params[0].file.row, 2);
  EXPECT_EQ(m.params[0].file.total_rows, 7);
  EXPECT_TRUE(m.params[3].file.transposed);
  EXPECT_EQ(m.params[3].file.total_rows, 5);
  EXPECT_EQ(m.blocks[1].nodes[0].attrs.at("eps"), 1e-05);
  EXPECT_EQ(to_string(m.blocks[1].type(m.blocks[1].outputs[1])), "f64[T=8/4]");
  EXPECT_EQ(m.uses[1].name, "the head");
  EXPECT_EQ(m.values[static_cast<size_t>(m.loss)].name, "loss");
  EXPECT_EQ(m.logits, kNone);
}

TEST(ModelText, RoundTrips) {
  const std::string once = print_model(parse_model(kTiny, "m.plait"));
  EXPECT_EQ(print_model(parse_model(once, "m.plait")), once);
  EXPECT_NE(once.find("param rest [2, D] zeros frozen file \"fused one\" rows 0 of 7\n"),
            std::string::npos);
  EXPECT_NE(once.find("loss, each = head (x, labels, weights) (norm, head) as \"the head\"\n"),
            std::string::npos);
  for (const std::string& name : named_models())
    for (const Head head : {Head::loss, Head::logits, Head::token_loss}) {
      const Model m = load_model(name, {2, 16}, head);
      const std::string text = print_model(m);
      const Model again = parse_model(text, name);
      EXPECT_EQ(print_model(again), text) << name;
      EXPECT_EQ(again.values.size(), m.values.size());
      for (size_t i = 0; i < m.values.size(); ++i) {
        EXPECT_EQ(again.values[i].name, m.values[i].name);
        EXPECT_EQ(again.values[i].type, m.values[i].type);
      }
    }
}

TEST(ModelText, RefusesWithFileAndLine) {
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"model \"tiny model\"", "modell x", "m.plait:2: found 'modell', expected 'model'"},
      {"dtype f64", "dtype i32", "m.plait:3: found 'i32', expected f32, f64 or bf16"},
      {"dtype f64", "dtype f64 f32", "m.plait:3: 'f32' is too much on this line"},
      {"T = 8 by 4", "T = 8 by 3", "m.plait:5: 8 is no multiple of 3"},
      {"D = 6", "D = 0", "m.plait:6: 0 is outside 1 to"},
      {"D = 6", "D = -6", "m.plait:6: -6 is outside 1 to"},
      {"D = 6", "D = 1099511627777", "m.plait:6: 1099511627777 is outside"},
      {"D = 6", "D = 6.5", "m.plait:6: found '6.5', expected a number"},
      {"V = 5", "D = 5", "m.plait:7: extent 'D' is declared twice"},
      {"input labels", "input tokens", "m.plait:9: value 'tokens' is declared twice"},
      {"labels i32[T]", "labels i64[T]", "m.plait:9: found 'i64', expected float or i32"},
      {"weights float[T]", "weights float[S]", "m.plait:10: there is no extent 'S' above"},
      {"weights float[T]", "weights float[1,1,1,1,1,1,1,1,1]", "m.plait:10: more than 8 dimens"},
      {"[V, D] normal 0.3", "[V, D] orthogonal 0.3",
       "m.plait:11: found 'orthogonal', expected zeros"},
      {"param rest", "param table", "m.plait:12: parameter 'table' is declared twice"},
      {"rows 2 of 7", "rows 3 of 7", "5 rows from row 3 of 7 in file tensor 'fused one'"},
      {"ones", "ones transposed", "1 dimensions are transposed in the file, expected 2"},
      {"normal 1e-05", "normal nan", "deviation nan"},
      {"embedding(table", "embeding(table", "m.plait:17: unknown op 'embeding'"},
      {"embedding(table", "embedding(tabel", "m.plait:17: there is no value 'tabel' above"},
      {"return return", "return y", "m.plait:18: there is no value 'y' above"},
      {"return loss, nll", "return loss, loss", "'loss' is returned twice"},
      {"block head", "block embed", "m.plait:20: block 'embed' is declared twice"},
      {"eps=1e-05", "eps=1e-05 eps=1", "m.plait:21: attribute eps stands twice"},
      {"eps=1e-05", "eps=inf", "m.plait:21: attribute eps is inf"},
      {" trans_b=1", "", "m.plait:22: op 'matmul' operand 1"},
      {"lse = row_lse(logits)", "n = row_lse(logits)", "m.plait:23: value 'n' is declared twice"},
      {"lse = row_lse(logits)", "lse, b = row_lse(logits)", "m.plait:23: op 'row_lse': 2 results"},
      {"  return loss, nll\n", "", "m.plait:27: found '}', expected a name"},
      {"x = embed", "x = embde", "m.plait:29: there is no block 'embde' above"},
      {"x = embed", "x, y = embed", "m.plait:29: block 'embed' has 1 results, 2 are named"},
      {"(tokens) (table, rest)", "(tokens) (table)", "found 1 parameters, expected 2"},
      {"(tokens) (table, rest)", "(tokens) (table, norm)", "parameter 'rest': found f64[D=6]"},
      {"(tokens) (table, rest)", "(weights) (table, rest)", "input 'tokens': found f64[T=8/4]"},
      {"(tokens) (table, rest)", "(x) (table, rest)", "m.plait:29: there is no value 'x' above"},
      {"as \"the head\"", "as embed", "m.plait:30: use 'embed' is declared twice"},
      {"loss loss\n", "loss x\n", "value 'x' feeds two uses"},
      {"loss loss\n", "loss each\n", "found f64[T=8/4], expected a result of f64 with 0 dim"},
      {"loss loss\n", "loss weights\n", "value 'weights' feeds two uses"},
      {"loss loss\n", "loss loss\nloss loss\n", "m.plait:32: loss stands twice"},
      {"loss loss\n", "param more [3] zeros\n", "parameter 'more' is not used by any block"},
      {"loss loss\n", "loss loss\n)", "m.plait:32: found ')', expected a name"},
      {"eps=1e-05", "eps=[1 2]", "attribute 'eps' is [1 2], expected one number"},
      {"eps=1e-05", "eps=[1 nan]", "m.plait:21: attribute eps is [1 nan]"},
      {"eps=1e-05", "eps=[1 2", "m.plait:22: a list of numbers has no ']'"},
      {"eps=1e-05", "eps=[1 x]", "m.plait:21: found 'x', expected a number"},
      {"loss loss\n", "loss loss\nresult loss each\n", "result 'loss' is declared twice"},
      {"loss loss\n", "loss loss\nresult \"a/b\" each\n", "its name holds a '/'"},
      {"loss loss\n", "loss loss\nresult each loss\n", "value 'loss' feeds two uses"},
      {"loss loss\n", "loss loss\nresult all labels\n", "found i32[T=8/4], expected a result"},
      {"loss loss\n", "loss loss\nresult all al\n", "m.plait:32: there is no value 'al' above"},
      {"as \"the head\"", "as \"the\thead\"", "a name needs characters"},
      {"as \"the head\"", "as \"the head", "m.plait:30: string without an end"},
  };
  EXPECT_EQ(error_of(kTiny), "accepted");
  for (const auto& c : cases) {
    const std::string error = error_of(replaced(kTiny, c.from, c.to));
    EXPECT_NE(error.find(c.words), std::string::npos) << c.to << ": " << error;
    EXPECT_EQ(error.find("m.plait:"), 0U) << c.to << ": " << error;
  }
}

TEST(ModelText, ListsAndResultsRoundTrip) {
  std::string text = replaced(kTiny, "eps=1e-05", "eps=1e-05 offset=0.5");
  text =
      replaced(text, "  return = embedding(table, tokens)   # a value may be called like a keyword",
               "  return = embedding(table, tokens)");
  text =
      replaced(text, "loss loss\n", "loss loss\nresult token_loss each\nresult \"an other\" x\n");
  EXPECT_NE(error_of(text).find("value 'x' feeds two uses"), std::string::npos);
  text = replaced(text, "result \"an other\" x\n", "");
  const Model m = parse_model(text, "m.plait");
  ASSERT_EQ(m.results.size(), 1u);
  EXPECT_EQ(m.results[0].name, "token_loss");
  EXPECT_NE(print_model(m).find("\nresult token_loss each\n"), std::string::npos);
  const Model again = parse_model(print_model(m), "m.plait");
  EXPECT_EQ(print_model(again), print_model(m));
  // A list of numbers, to the last bit.
  Lexer lexer("[1 0.1 1e-300 -2.5]", "list");
  const Attr list = parse_attr(lexer);
  EXPECT_EQ(list, Attr(std::vector<double>{1, 0.1, 1e-300, -2.5}));
  EXPECT_EQ(to_string(list), "[1 0.1 1e-300 -2.5]");
  EXPECT_THROW(list.number(), Error);
  EXPECT_THROW(Attr(3).list(), Error);
}

TEST(ModelText, EveryPrefixParsesOrThrows) {
  const std::string text = kTiny;
  for (size_t n = 0; n < text.size(); ++n) EXPECT_NO_FATAL_FAILURE(error_of(text.substr(0, n)));
  for (size_t n = 0; n < text.size(); ++n) {
    std::string changed = text;
    for (const char c : {'"', '(', '9', ' ', '\n', '='}) {
      changed[n] = c;
      EXPECT_NO_FATAL_FAILURE(error_of(changed));
    }
  }
}

}  // namespace
}  // namespace plait
