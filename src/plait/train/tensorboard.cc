#include "plait/train/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "plait/base/error.h"
#include "plait/io/files.h"

namespace plait {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1U) != 0 ? (c >> 1) ^ 0x82f63b78U : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrc = crc_table();

// TFRecord stores checksums masked, for data that holds checksums itself.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// ---- protobuf's wire format: a key (number of the field, kind) before each value ------------

std::string varint(uint64_t n) {
  std::string bytes;
  for (; n >= 0x80; n >>= 7) bytes += static_cast<char>(n | 0x80);
  return bytes + static_cast<char>(n);
}

std::string key(int field, unsigned kind) {
  return varint(static_cast<uint64_t>(field) << 3 | kind);
}
std::string number(int field, int64_t n) {
  return key(field, 0) + varint(static_cast<uint64_t>(n));
}
std::string real(int field, double x) { return key(field, 1) + raw(x); }
std::string real32(int field, float x) { return key(field, 5) + raw(x); }
std::string bytes(int field, std::string_view content) {
  return key(field, 2) + varint(content.size()) + std::string(content);
}

// ---- the messages; numbers of fields from tensorflow's event.proto and summary.proto ---------

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// Event: wall_time 1, step 2, and what it is about.
std::string event(int64_t step, const std::string& what) {
  return real(1, now()) + number(2, step) + what;
}

// Event.summary 5, Summary.value 1, Value.tag 1.
std::string summary(std::string_view tag, const std::string& value) {
  return bytes(5, bytes(1, bytes(1, tag) + value));
}

// A summary of text: Value.tensor 8 with one string, and metadata 9 that names the plugin.
std::string text_value(std::string_view text) {
  constexpr int kString = 7;  // DT_STRING
  const std::string shape = bytes(2, bytes(2, number(1, 1)));
  const std::string tensor = number(1, kString) + shape + bytes(8, text);
  return bytes(9, bytes(1, bytes(1, "text"))) + bytes(8, tensor);
}

std::string host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string text = name.data();
  for (char& c : text)
    if (c == '/') c = '-';
  return text;
}

std::string file_name() {
  static std::atomic<int> count = 0;
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(now()), host(),
                     ::getpid(), count++);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t c = ~0U;
  for (const char byte : bytes) c = kCrc[(c ^ static_cast<unsigned char>(byte)) & 0xffU] ^ (c >> 8);
  return ~c;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder,
                                     std::optional<int64_t> resumed_step) {
  create_folders(folder);
  path_ = (std::filesystem::path(folder) / file_name()).string();
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    fail("cannot create '{}': {}", path_, std::generic_category().message(errno));
  try {
    record(real(1, now()) + bytes(3, "brain.Event:2"));  // file_version
    if (resumed_step)  // session_log 7 with status START: what was later is void
      record(event(*resumed_step + 1, bytes(7, number(1, 1))));
    flush();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TensorBoardWriter::~TensorBoardWriter() {
  try {
    flush();
  } catch (const Error&) {  // flush() itself is the place to hear of it
  }
  ::close(descriptor_);
}

void TensorBoardWriter::record(const std::string& event) {
  const std::string length = raw(static_cast<uint64_t>(event.size()));
  waiting_ += length + raw(masked(crc32c(length))) + event + raw(masked(crc32c(event)));
}

void TensorBoardWriter::scalar(std::string_view tag, int64_t step, double value) {
  record(event(step, summary(tag, real32(2, static_cast<float>(value)))));
}

void TensorBoardWriter::text(std::string_view tag, int64_t step, std::string_view text) {
  record(event(step, summary(tag, text_value(text))));
}

void TensorBoardWriter::flush() {
  size_t done = 0;
  while (done < waiting_.size()) {
    const ssize_t n = ::write(descriptor_, waiting_.data() + done, waiting_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int code = errno;
      waiting_.erase(0, done);
      fail("cannot write '{}': {}", path_, std::generic_category().message(code));
    }
    done += static_cast<size_t>(n);
  }
  waiting_.clear();
}

}  // namespace plait
