#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "plait/base/rng.h"
#include "plait/comm/collectives.h"

namespace plait {
namespace {

// Runs f(rank, transport) on every rank of a world in which everyone may talk to everyone.
template <class F>
void on_ranks(int ranks, int64_t largest, F&& f, std::vector<int64_t>* sent = nullptr) {
  ChannelPlan channels;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b) channels[{a, b}] = largest;
  LocalWorld world(ranks, channels, 1, 10);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { f(r, world.transport(r)); });
  for (std::thread& t : threads) t.join();
  for (int r = 0; sent != nullptr && r < ranks; ++r)
    sent->push_back(world.transport(r).sent_bytes());
}

double value(int rank, int64_t i) {
  return normal(7, Stream::test, static_cast<uint64_t>(i), static_cast<uint32_t>(rank));
}

Ring ring_of(int ranks, int me) {
  Ring ring;
  for (int r = 0; r < ranks; ++r) ring.ranks.push_back(r);
  ring.me = static_cast<size_t>(me);
  return ring;
}

double combined(int ranks, int64_t i, Reduce reduce) {
  double sum = 0, high = -1e300, exps = 0;
  for (int r = 0; r < ranks; ++r) {
    sum += value(r, i);
    high = std::max(high, value(r, i));
    exps += std::exp(value(r, i));
  }
  return reduce == Reduce::sum ? sum : reduce == Reduce::max ? high : std::log(exps);
}

TEST(Comm, AllReduceEverySizeRingAndReduction) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const int64_t n : {0, 1, 2, 3, 4, 7, 64})
      for (const Reduce reduce : {Reduce::sum, Reduce::max, Reduce::lse}) {
        std::vector<std::vector<double>> data(static_cast<size_t>(ranks));
        on_ranks(ranks, 8 * 64, [&](int r, Transport& t) {
          auto& mine = data[static_cast<size_t>(r)];
          for (int64_t i = 0; i < n; ++i) mine.push_back(value(r, i));
          ring_all_reduce(t, ring_of(ranks, r), reinterpret_cast<std::byte*>(mine.data()), n,
                          Dtype::f64, reduce);
        });
        for (int64_t i = 0; i < n; ++i)
          EXPECT_NEAR(data[0][static_cast<size_t>(i)], combined(ranks, i, reduce), 1e-14);
        for (const auto& other : data) EXPECT_EQ(other, data[0]) << "replicas differ in bits";
      }
}

TEST(Comm, GatherAndScatterUnevenColumns) {
  // A [3, 6] matrix whose columns lie on four ranks: 3, 0, 2 and 1 of them.
  const std::vector<int64_t> widths = {3, 0, 2, 1};
  std::vector<std::vector<double>> gathered(4), scattered(4);
  on_ranks(4, 8 * 18, [&](int r, Transport& t) {
    auto blocks = [&](std::vector<double>& m) {
      std::vector<Strided> all;
      int64_t begin = 0;
      for (const int64_t w : widths) {
        all.push_back({reinterpret_cast<std::byte*>(m.data() + begin), 3, 8 * w, 8 * 6});
        begin += w;
      }
      return all;
    };
    auto& whole = gathered[static_cast<size_t>(r)];
    whole.assign(18, 0);
    for (size_t i = 0; i < 18; ++i) {
      size_t owner = 0, column = i % 6;
      while (static_cast<int64_t>(column) >= widths[owner])
        column -= static_cast<size_t>(widths[owner++]);
      if (owner == static_cast<size_t>(r)) whole[i] = static_cast<double>(i);
    }
    ring_all_gather(t, ring_of(4, r), blocks(whole));
    auto& terms = scattered[static_cast<size_t>(r)];
    for (int64_t i = 0; i < 18; ++i) terms.push_back(value(r, i));
    ring_reduce_scatter(t, ring_of(4, r), blocks(terms), Dtype::f64, Reduce::sum);
  });
  for (const auto& whole : gathered)
    for (size_t i = 0; i < 18; ++i) EXPECT_EQ(whole[i], static_cast<double>(i));
  size_t begin = 0;
  for (size_t r = 0; r < 4; ++r)
    for (int64_t w = 0; w < widths[r]; ++w, ++begin)
      for (size_t row = 0; row < 3; ++row)
        EXPECT_NEAR(scattered[r][row * 6 + begin],
                    combined(4, static_cast<int64_t>(row * 6 + begin), Reduce::sum), 1e-14);
}

TEST(Comm, SameBitsWhateverTheTiming) {
  std::vector<double> first;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<double>> data(3);
    on_ranks(3, 8 * 16, [&](int r, Transport& t) {
      auto& mine = data[static_cast<size_t>(r)];
      for (int64_t i = 0; i < 16; ++i) mine.push_back(value(r, i));
      if (round % 3 == r) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ring_all_reduce(t, ring_of(3, r), reinterpret_cast<std::byte*>(mine.data()), 16, Dtype::f64,
                      Reduce::sum);
    });
    if (round == 0) first = data[0];
    EXPECT_EQ(data[1], first);
  }
}

TEST(Comm, CountsWhatItSends) {
  std::vector<int64_t> sent;
  on_ranks(
      4, 8 * 16,
      [&](int r, Transport& t) {
        std::vector<double> mine(10, 1);  // chunks of 3, 3, 2, 2
        ring_all_reduce(t, ring_of(4, r), reinterpret_cast<std::byte*>(mine.data()), 10, Dtype::f64,
                        Reduce::sum);
      },
      &sent);
  // All chunks but the next one's, then all but the one after that.
  EXPECT_EQ(sent, (std::vector<int64_t>{8 * (20 - 3 - 2), 8 * (20 - 2 - 2), 8 * (20 - 2 - 3),
                                        8 * (20 - 3 - 3)}));
}

TEST(Comm, AWrongSizeAHangAndAnAbortAreErrors) {
  LocalWorld world(2, {{{0, 1}, 64}, {{1, 0}, 64}}, 1, 0.2);
  std::vector<std::byte> data(128);
  world.transport(0).send(1, {data.data(), 1, 16, 16});
  EXPECT_THROW(receive_into(world.transport(1), 0, {data.data(), 1, 8, 8}), Error);
  EXPECT_THROW(world.transport(0).send(1, {data.data(), 1, 16, 16}), Error)
      << "the channel is full";
  EXPECT_THROW(receive_into(world.transport(0), 1, {data.data(), 1, 8, 8}), Error)
      << "nobody sends";
  EXPECT_THROW(world.transport(0).send(0, {data.data(), 1, 8, 8}), Error) << "no such channel";
  LocalWorld other(2, {{{0, 1}, 64}}, 1, 60);
  std::atomic<bool> stopped{false};
  std::thread waiting([&] {
    try {
      receive_into(other.transport(1), 0, {data.data(), 1, 8, 8});
    } catch (const Error&) {
      stopped = true;
    }
  });
  other.abort();
  waiting.join();
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace plait
