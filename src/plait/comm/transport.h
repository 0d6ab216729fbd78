// Transport: one rank's end of the world's point-to-point messages. Between two ranks messages
// arrive in the order sent, without tags; a send waits when the channel is full. Collectives
// (collectives.h) are built on this and nothing else, so every transport runs the same ones.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace plait {

// `rows` pieces of `row_bytes` bytes, `stride` bytes apart: a block of a dense tensor.
struct Strided {
  std::byte* data = nullptr;
  int64_t rows = 1, row_bytes = 0, stride = 0;
  int64_t bytes() const { return rows * row_bytes; }
};

// Called with the dense bytes of a received message, which are gone when it returns.
struct Sink {
  void (*take)(void* self, const std::byte* data);
  void* self;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  // Both throw Error when the world is aborted, or when nothing moves for the world's limit.
  virtual void send(int to, const Strided& message) = 0;
  virtual void receive(int from, int64_t bytes, Sink sink) = 0;
  // Bytes written to the transport since it was made: counted here, not where they are planned.
  int64_t sent_bytes() const { return sent_bytes_; }

 protected:
  int64_t sent_bytes_ = 0;
};

void receive_into(Transport& transport, int from, const Strided& target);

// Which channels a world needs: (from, to) -> the largest message.
using ChannelPlan = std::map<std::pair<int, int>, int64_t>;

// The world in which ranks are threads of this process. All channels and their slots are made at
// the start; nothing is allocated later.
class LocalWorld {
 public:
  LocalWorld(int ranks, const ChannelPlan& channels, int slots, double limit_seconds);
  ~LocalWorld();
  Transport& transport(int rank);
  // Wakes every waiting rank; all further sends and receives throw.
  void abort();
  bool aborted() const;

 private:
  class Channel;
  class End;
  struct Shared;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace plait
