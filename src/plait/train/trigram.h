// ByteTrigram: predicts a byte from the two before it, by counting. The yardstick beside a
// model's validation loss: whoever does not beat it has learned nothing but spelling.
//
//   ByteTrigram trigram(data.training());
//   double nats = trigram.nats_per_byte(data.validation(), 1, 1 + labels);
//
// Counts of three, two and one bytes are interpolated down to the uniform distribution in the
// manner of Witten and Bell (1991): a context gives its shorter context a weight that grows with
// the number of different bytes seen after it. The strength of that, one number for each length
// of context, is fitted on the last 5 % of the training text, which is counted as well afterwards.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plait {

class ByteTrigram {
 public:
  explicit ByteTrigram(std::string_view training);
  // Of `byte` after the bytes a, b.
  double probability(unsigned char a, unsigned char b, unsigned char byte) const;
  // Mean -ln p of text[begin, end); contexts are the bytes before, begin itself included.
  double nats_per_byte(std::string_view text, int64_t begin, int64_t end) const;
  const std::array<double, 3>& strength() const { return strength_; }  // of 2, 1, 0 bytes

 private:
  void count(std::string_view text, size_t begin);
  void fit(std::string_view text, size_t begin);

  // Of every context of 2, 1 and 0 bytes: how often each byte followed, and sums over them.
  struct Order {
    std::vector<uint32_t> counts, totals, kinds;
    explicit Order(size_t contexts) : counts(contexts * 256), totals(contexts), kinds(contexts) {}
    double mix(size_t context, unsigned char byte, double strength, double shorter) const;
  };
  Order three_, two_, one_;
  std::array<double, 3> strength_{1, 1, 1};
};

}  // namespace plait
